// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"liqo.io/liqo/internal/offloading/reflection/project"
)

// TestRefusedMessage: deployments/liqo checks that the policy of the chart writes such messages.
func TestRefusedMessage(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("k%d", i))
	}
	for _, test := range []struct {
		message string
		want    project.Denied
		found   bool
	}{
		{"", project.Denied{}, false},
		{`services "x" is forbidden: exceeded quota`, project.Denied{}, false},
		{
			"denied request: metadata refused: labels [a.example/b, c], annotations [d.example/e]: this cluster",
			project.Denied{Labels: project.Keys{"a.example/b", "c"}, Annotations: project.Keys{"d.example/e"}},
			true,
		},
		{"metadata refused: labels [], annotations []: this cluster", project.Denied{}, false},
		{"metadata refused: labels [*, a*, b c, \n, -], annotations [/, a/b/c]", project.Denied{}, false},
		{"metadata refused: labels [" + strings.Join(many, ", ") + "], annotations []", project.Denied{Labels: many[:64]}, true},
		{"denied request: node ports refused, a peer must not choose them", project.Denied{NodePorts: true}, true},
	} {
		got, found := project.Refused(test.message)
		if diff := cmp.Diff(test.want, got); diff != "" || found != test.found {
			t.Errorf("%.100q: %v %s", test.message, found, diff)
		}
	}
}
