// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// variable has the number of the change that a test program makes.
const variable = "LIQO_MUTANT"

// chooses is the file that is added to a package.
const chooses = `package %s

import (
	"os"
	"strconv"
)

var mutantNumber = func() int { n, _ := strconv.Atoi(os.Getenv("` + variable + `")); return n }()

func isMutant(n int) bool { return n == mutantNumber }
`

// point is a place where a condition is changed.
type point struct {
	file string
	line int
	what string
}

func (p point) where() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// name is a change without its line, which changes with everything above it: where a file has the same condition twice, both are meant.
func (p point) name() string { return p.file + ": " + p.what }

// noTest is between place and change in a line about a change that no test fails for.
const noTest = ": no test fails if "

// survivors are the names of the changes that an earlier run printed such a line for.
func survivors(output string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(output) {
		if where, what, ok := strings.Cut(strings.TrimSpace(line), noTest); ok {
			file, _, _ := strings.Cut(where, ":")
			names[point{file: file, what: what}.name()] = true
		}
	}
	return names
}

// edit puts text before and after a part of a file.
type edit struct {
	from, to      int
	before, after string
}

// mutate returns a file with all changes in it, each of which is made if its number is chosen. The first one has the number first.
func mutate(name, text string, first int) ([]point, string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, "", err
	}
	m := mutator{text: text, at: func(p token.Pos) token.Position { return files.Position(p) }, number: first}
	ast.Inspect(file, m.visit)
	return m.points, m.apply(), nil
}

type mutator struct {
	text   string
	at     func(token.Pos) token.Position
	number int
	points []point
	edits  []edit
}

func (m *mutator) visit(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.GenDecl:
		return node.Tok != token.CONST
	case *ast.IfStmt:
		m.condition(node.Cond)
	case *ast.ForStmt:
		return true // a loop that does not end shows nothing
	case *ast.SwitchStmt:
		if node.Tag != nil {
			return true
		}
		for _, clause := range node.Body.List {
			for _, one := range clause.(*ast.CaseClause).List { //nolint:forcetypeassert // what else is in a switch
				m.condition(one)
			}
		}
	case *ast.BinaryExpr:
		m.binary(node)
	}
	return true
}

// condition reverses a condition that is no comparison and has no parts: those are changed themselves.
func (m *mutator) condition(e ast.Expr) {
	if leaf(e) {
		m.add(e, "(", ") != isMutant(%d)", "is reversed")
	}
}

func leaf(e ast.Expr) bool {
	for {
		inner, ok := e.(*ast.ParenExpr)
		if !ok {
			break
		}
		e = inner.X
	}
	_, binary := e.(*ast.BinaryExpr)
	return !binary
}

func (m *mutator) binary(e *ast.BinaryExpr) {
	x, y := m.source(e.X), m.source(e.Y)
	switch e.Op {
	case token.LAND:
		m.add(e.X, "(isMutant(%d) || (", "))", "is left out of the condition")
		m.add(e.Y, "(isMutant(%d) || (", "))", "is left out of the condition")
	case token.LOR:
		m.add(e.X, "(!isMutant(%d) && (", "))", "is left out of the condition")
		m.add(e.Y, "(!isMutant(%d) && (", "))", "is left out of the condition")
	case token.EQL, token.NEQ:
		m.add(e, "((", ") != isMutant(%d))", "is reversed")
	case token.LSS, token.GTR:
		m.add(e, "((", ") || isMutant(%d) && "+verbatim(x+" == "+y)+")", "also holds for equal sides")
	case token.LEQ, token.GEQ:
		m.add(e, "((", ") && !(isMutant(%d) && "+verbatim(x+" == "+y)+"))", "does not hold for equal sides")
	default:
	}
}

func verbatim(text string) string { return strings.ReplaceAll(text, "%", "%%") }

func (m *mutator) source(e ast.Expr) string {
	return m.text[m.at(e.Pos()).Offset:m.at(e.End()).Offset]
}

// add makes a change; one of both texts has the place of its number.
func (m *mutator) add(e ast.Expr, before, after, what string) {
	for _, text := range []*string{&before, &after} {
		if strings.Contains(*text, "%d") {
			*text = fmt.Sprintf(*text, m.number)
		}
	}
	source := strings.Join(strings.Fields(m.source(e)), " ")
	m.number++
	m.points = append(m.points, point{m.at(e.Pos()).Filename, m.at(e.Pos()).Line, fmt.Sprintf("`%s` %s", source, what)})
	m.edits = append(m.edits, edit{m.at(e.Pos()).Offset, m.at(e.End()).Offset, before, after})
}

// apply puts the texts in, from the outer parts to the inner ones: those that start at the same place in the order in which they were found.
func (m *mutator) apply() string {
	type insertion struct {
		at, length, order int
		ends              bool
		text              string
	}
	var all []insertion
	for i, e := range m.edits {
		all = append(all, insertion{e.from, e.to - e.from, i, false, e.before}, insertion{e.to, e.to - e.from, i, true, e.after})
	}
	slices.SortFunc(all, func(a, b insertion) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.ends != b.ends: // what ends here ends before anything starts
			if a.ends {
				return -1
			}
			return 1
		case a.length != b.length && a.ends:
			return a.length - b.length
		case a.length != b.length:
			return b.length - a.length
		case a.ends:
			return b.order - a.order
		}
		return a.order - b.order
	})
	var out strings.Builder
	last := 0
	for _, one := range all {
		out.WriteString(m.text[last:one.at])
		out.WriteString(one.text)
		last = one.at
	}
	out.WriteString(m.text[last:])
	return out.String()
}
