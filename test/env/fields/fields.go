// SPDX-License-Identifier: Apache-2.0

// Package fields compares objects with what is wanted of them, and finds values in them by their paths.
//
// It knows no kind and no cluster. Proof: fields_test.go.
package fields

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// At is the value at a path of keys and indexes, with dots between; nil if there is none.
func At(object map[string]any, path string) any {
	var value any = object
	for part := range strings.SplitSeq(path, ".") {
		switch is := value.(type) {
		case map[string]any:
			value = is[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(is) {
				return nil
			}
			value = is[i]
		default:
			return nil
		}
	}
	return value
}

// Differences holds an object, or a part of one, against what is wanted of it, in YAML. What is not named there may be anything; what is
// null must not be there; "*" is any value but none, and "~..." whatever the regular expression matches as a whole. Lists have as many
// elements as are wanted.
func Differences(got any, want string) []string {
	var wanted any
	if err := yaml.Unmarshal([]byte(want), &wanted); err != nil {
		return []string{fmt.Sprintf("%v in %s", err, want)}
	}
	return differences("", got, wanted)
}

func differences(at string, got, want any) (all []string) {
	differs := func() []string {
		return []string{fmt.Sprintf("%s is %v, want %v", strings.TrimPrefix(at, "."), got, want)}
	}
	switch want := want.(type) {
	case nil:
		if got != nil {
			return differs()
		}
	case map[string]any:
		is, ok := got.(map[string]any)
		if !ok {
			return differs()
		}
		for key, value := range want {
			all = append(all, differences(at+"."+key, is[key], value)...)
		}
	case []any:
		is, ok := got.([]any)
		if !ok || len(is) != len(want) {
			return differs()
		}
		for i := range want {
			all = append(all, differences(fmt.Sprintf("%s.%d", at, i), is[i], want[i])...)
		}
	case string:
		pattern, isPattern := strings.CutPrefix(want, "~")
		text, isText := got.(string)
		switch {
		case want == "*" && got != nil:
		case isPattern && isText && regexp.MustCompile("^(?:"+pattern+")$").MatchString(text):
		case !isText || text != want:
			return differs()
		}
	default:
		if got == nil || fmt.Sprint(got) != fmt.Sprint(want) { // numbers come in two types
			return differs()
		}
	}
	slices.Sort(all)
	return all
}
