// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"liqo.io/liqo/internal/offloading/reflection"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// TestReflectionFlags: the engine gets the options that the flags of the virtual kubelet give.
func TestReflectionFlags(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	for name, test := range map[string]struct {
		args    []string
		labels  project.Keys
		notes   project.Keys
		workers map[string]int // those that differ from the default
		server  bool
		fault   string
	}{
		"nothing": {},
		"lists": {
			args:   []string{"--labels-not-reflected=internal,secret.example.com/*", "--annotations-not-reflected=build.example.com/*"},
			labels: project.Keys{"internal", "secret.example.com/*"}, notes: project.Keys{"build.example.com/*"},
		},
		"several times":       {args: []string{"--labels-not-reflected=a", "--labels-not-reflected=b, c"}, labels: project.Keys{"a", "b", "c"}},
		"all annotations":     {args: []string{"--annotations-not-reflected=*"}, notes: project.Keys{"*"}},
		"a star within":       {args: []string{"--labels-not-reflected=a*b"}, fault: `--labels-not-reflected: key "a*b"`},
		"an empty key":        {args: []string{"--annotations-not-reflected=a,,b"}, fault: "--annotations-not-reflected: a key is empty"},
		"kinds not reflected": {args: []string{"--configmap-reflection-workers=0", "--pod-reflection-workers=0"}, workers: map[string]int{"configmap": 0, "pod": 0}},
		"more workers":        {args: []string{"--service-account-reflection-workers=7"}, workers: map[string]int{"service-account": 7}},
		"too few workers":     {args: []string{"--secret-reflection-workers=-1"}, fault: "--secret-reflection-workers -1"},
		"the API server":      {args: []string{"--enable-apiserver-support"}, server: true},
		"a domain":            {args: []string{"--enable-apiserver-support", "--home-cluster-domain=rome.example"}, server: true},
		"no domain":           {args: []string{"--home-cluster-domain=-rome"}, fault: `--home-cluster-domain "-rome"`},
		"not the API server":  {args: []string{"--enable-apiserver-support=false", "--home-api-server-host=a", "--home-api-server-port=1"}},
	} {
		var o Options
		flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
		o.Register(flags)
		if err := flags.Parse(test.args); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		err := o.reflection.Validate()
		if (err != nil) != (test.fault != "") || err != nil && !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%s: %v, want %q", name, err, test.fault)
		}
		if err != nil {
			continue
		}
		denied, err := o.reflection.denied()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := o.engine(denied, nil)
		if diff := cmp.Diff(project.Denied{Labels: test.labels, Annotations: test.notes}, got.Mapping.Skip); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		workers := reflection.DefaultWorkers()
		for kind, count := range test.workers {
			workers[kind] = count
		}
		if diff := cmp.Diff(workers, got.Workers); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if (got.APIServer != nil) != test.server {
			t.Errorf("%s: API server for remote pods: %t, want %t", name, got.APIServer != nil, test.server)
		}
	}
}
