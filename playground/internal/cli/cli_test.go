// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"liqo.io/liqo/playground/internal/topology"
)

func run(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Main(args, &o, &e)
	return code, o.String(), e.String()
}

// Every command explains itself, and its examples are commands that exist.
func TestHelp(t *testing.T) {
	root := newRoot(&app{out: new(bytes.Buffer), err: new(bytes.Buffer)})
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
				visit(sub)
			}
		}
		if c.Short == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
			if !strings.HasPrefix(line, "playground ") {
				continue
			}
			found, _, err := root.Find(strings.Fields(line)[1:])
			if err != nil || found == root {
				t.Errorf("%s: the example %q is no command: %v", c.CommandPath(), line, err)
			}
		}
	}
	visit(root)
	code, out, _ := run(t, "--help")
	for _, name := range []string{
		"up", "down", "status", "kubeconfig", "load", "image", "node", "component", "fault", "nat", "proxy", "exec", "logs", "add", "remove",
		"build", "completion",
	} {
		if !strings.Contains(out, "\n  "+name+" ") {
			t.Errorf("help does not list %s", name)
		}
	}
	if code != 0 {
		t.Errorf("--help ends with %d", code)
	}
}

func TestCompletionForFourShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, errs := run(t, "completion", shell); code != 0 || len(out) < 100 {
			t.Errorf("%s: code %d, %d bytes, %s", shell, code, len(out), errs)
		}
	}
	if _, out, _ := run(t, "__complete", "up", ""); !strings.Contains(out, "quick-start\n") {
		t.Errorf("up completes to %q", out)
	}
}

// Bad input is refused with exit code 1, a message that helps, and nothing made.
func TestRefused(t *testing.T) {
	if _, err := os.Stat(topology.StateDir); err == nil {
		t.Skip("a playground is up on this machine; some of these commands would talk to it")
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("clusters:\n- name: rome\n  podCidr: 10.0.0.0/8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":        {[]string{"start"}, `unknown command "start"`},
		"unknown flag":           {[]string{"up", "--nodes", "3"}, "unknown flag: --nodes"},
		"unknown scenario":       {[]string{"up", "nowhere"}, "there are: control-plane-only, global-ingress, policies, quick-start"},
		"missing file":           {[]string{"up", "./nowhere.yaml"}, "no such file"},
		"bad file":               {[]string{"up", bad}, bad + `:3: unknown field "podCidr"`},
		"bad network":            {[]string{"up", "--network", "ten"}, `--network "ten" is no IPv4 prefix`},
		"network over pods":      {[]string{"up", "--network", "10.200.0.0/16"}, "pods 10.200.0.0/16 of rome overlap the node networks"},
		"nothing up":             {[]string{"status"}, "no playground is up; start one with: playground up"},
		"nothing up, kubeconfig": {[]string{"kubeconfig", "rome"}, "no playground is up"},
		"nothing up, exec":       {[]string{"exec", "rome", "rome-worker", "--", "true"}, "no playground is up"},
		"output format":          {[]string{"status", "-o", "yaml"}, `output format "yaml"`},
		"no image":               {[]string{"load", "nowhere.tar"}, "no file nowhere.tar, and no image of that name ships; those that do: coredns, demo"},
		"which image":            {[]string{"image", "build"}, "which image?"},
		"half a package":         {[]string{"image", "build", "--debian", "redis-server"}, "needs --debian, --name and -o"},
		"both ways":              {[]string{"image", "build", "--debian", "a", "--binary", "b", "--name", "h.local/c:1", "-o", "d"}, "neither --binary"},
		"half an image":          {[]string{"image", "build", "--binary", "/bin/true"}, "needs --binary, --name and -o"},
		"bad delay":              {[]string{"fault", "delay", "rome", "milan", "soon"}, `delay "soon"`},
		"negative delay":         {[]string{"fault", "delay", "rome", "milan", "-5ms"}, "delay -5ms: negative"},
		"bad loss":               {[]string{"fault", "loss", "rome", "milan", "200%"}, `loss "200%"`},
		"fault with itself":      {[]string{"fault", "delay", "rome", "rome", "5ms"}, "two different clusters"},
		"bad port":               {[]string{"fault", "allow", "rome", "milan", "443"}, `port "443": no protocol and port`},
		"no port":                {[]string{"fault", "allow", "rome", "milan"}, "requires at least 3 arg"},
		"counters format":        {[]string{"fault", "counters", "-o", "yaml"}, `output format "yaml"`},
		"nothing up, counters":   {[]string{"fault", "counters", "rome"}, "no playground is up"},
		"nothing up, nat":        {[]string{"nat", "rebind", "rome"}, "no playground is up"},
		"no cluster behind NAT":  {[]string{"nat", "add"}, "requires at least 1 arg"},
		"proxy to nowhere":       {[]string{"proxy", "add", "milan", "--listen", "80"}, "--to 0: a reverse proxy needs a port"},
		"proxy of no kind":       {[]string{"proxy", "add", "milan", "--kind", "squid", "--listen", "80"}, "use nginx, haproxy or connect"},
		"nothing up, proxy":      {[]string{"proxy", "remove", "milan-proxy1"}, "no playground is up"},
		"bad cluster name":       {[]string{"add", "Rome!"}, "is no cluster name"},
		"file and flags":         {[]string{"add", "rome", "-f", bad, "--workers", "2"}, "leave --workers out"},
		"no source":              {[]string{"--source", t.TempDir(), "build"}, "hash the source of component kube"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := run(t, c.args...)
			if code != 1 || out != "" || !strings.Contains(errs, c.want) {
				t.Errorf("code %d, output %q, message %q; want 1, nothing, and %q", code, out, errs, c.want)
			}
			if _, err := os.Stat(topology.StateDir); err == nil {
				t.Error("something was made")
			}
		})
	}
}

func TestScenarios(t *testing.T) {
	code, out, _ := run(t, "scenarios")
	if code != 0 || strings.Count(out, "\n") != len(shipped()) || !strings.Contains(out, "quick-start          Two clusters") {
		t.Errorf("code %d, output\n%s", code, out)
	}
	if _, out, _ := run(t, "scenarios", "scale"); !strings.Contains(out, "kind: kwok") {
		t.Errorf("scale is\n%s", out)
	}
}
