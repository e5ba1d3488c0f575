// SPDX-License-Identifier: Apache-2.0

package boxes

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"liqo.io/liqo/internal/action/networktest"
	"liqo.io/liqo/internal/cli/output"
)

// FailedPaths is the error of a test in which paths failed.
func FailedPaths(report networktest.Report) error {
	if report.Failed == 0 {
		return nil
	}
	var lines []string
	for _, r := range report.Results {
		if r.Error != "" {
			lines = append(lines, fmt.Sprintf("%s, %s, %s, %s %s to %s %s (%s): %s", r.Case, r.Protocol, r.Size(), r.FromCluster, r.From, r.ToCluster, r.To,
				r.Target, r.Error))
		}
	}
	return fmt.Errorf("%d of %d ways do not work:\n- %s", report.Failed, len(report.Results), strings.Join(lines, "\n- "))
}

var columns = []string{"From", "To", "Protocol", "Size", "Result", "Seen as"}

// Network is the table of a test: a line for each path if verbose, otherwise one for each kind of path and direction.
func Network(report networktest.Report, verbose bool) output.Box {
	var w output.Text
	title := ""
	for _, group := range groups(report.Results, verbose) {
		if group.title != title {
			title = group.title
			w.Depth = 0
			w.Line("%s", title)
			w.Depth = 1
		}
		width := make([]int, len(columns))
		for _, row := range append([][]string{columns}, group.rows...) {
			for i, cell := range row {
				width[i] = max(width[i], utf8.RuneCountInString(cell))
			}
		}
		for _, row := range append([][]string{columns}, group.rows...) {
			line := ""
			for i, cell := range row {
				line += fmt.Sprintf("%-*s  ", width[i], cell)
			}
			w.Line("%s", strings.TrimRight(line, " "))
		}
	}
	return output.Box{Title: "Network between " + report.Local + " and " + report.Remote, Lines: w.Lines}
}

// group is a case with its rows.
type group struct {
	title string
	rows  [][]string
}

// groups returns the results by case, in the order of the results.
func groups(results []networktest.Result, verbose bool) (all []*group) {
	type key struct{ title, from, to, protocol, size string }
	type sum struct {
		good, all int
		sources   []string
	}
	sums := map[key]*sum{}
	var order []key
	for _, r := range results {
		k := key{r.Case, r.FromCluster, r.ToCluster, r.Protocol, r.Size()}
		if verbose {
			k.from, k.to = r.FromCluster+" "+r.From, r.ToCluster+" "+r.To
		}
		if sums[k] == nil {
			sums[k] = &sum{}
			order = append(order, k)
		}
		s := sums[k]
		s.all++
		if r.Error == "" {
			s.good++
		}
		if r.Source != "" && !slices.Contains(s.sources, r.Source) {
			s.sources = append(s.sources, r.Source)
		}
	}
	for _, k := range order {
		s := sums[k]
		i := slices.IndexFunc(all, func(g *group) bool { return g.title == k.title })
		if i < 0 {
			i, all = len(all), append(all, &group{title: k.title})
		}
		state := "✓"
		if s.good < s.all {
			state = "✗"
		}
		if !verbose {
			state = fmt.Sprintf("%s %d/%d", state, s.good, s.all)
		}
		slices.Sort(s.sources)
		all[i].rows = append(all[i].rows, []string{k.from, k.to, k.protocol, k.size, state, strings.Join(s.sources, ", ")})
	}
	return all
}
