// SPDX-License-Identifier: Apache-2.0

// Package quickstart runs what the README's first command runs, hack/quickstart, up and down, and compares it with the guide in
// examples/quick-start line by line: each command of the guide is run and prints what it should, and the shop works across both clusters.
//
// It knows what a reader knows: the guide, the output, kubectl. It makes clusters, for which it must be root, or uses clusters that are
// given by environment variables.
package quickstart

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/guide"
)

var keep = flag.Bool("keep", false, "leave the quick start up (for work on it)")

// own are commands of the guide that the script runs in another form: those that make clusters and images, those for looking around, and
// the last one for the namespace, which goes with its cluster. This test runs those of the shop.
var own = regexp.MustCompile(
	`^(make|for|export|cd|echo|kubectl port-forward|kubectl patch|kubectl scale|kubectl delete namespace|liqoctl peer out-of-band milan --auth-url …)`,
)

var (
	clusters    *env.Env
	rome, milan *env.Cluster
)

// TestMain lets the script bring up its clusters itself, unless clusters are given.
func TestMain(m *testing.M) {
	given, err := env.Given(env.Pair)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if given == nil {
		flag.Parse()
		os.Exit(m.Run())
	}
	env.Main(m, env.Pair, keep, func(e *env.Env) error {
		clusters, rome, milan = e, e.Clusters[0], e.Clusters[1]
		return e.LoadNeeded("liqo-image.tar", "demo-image.tar", "redis-image.tar", "tools")
	})
}

// TestQuickStart goes through the guide.
func TestQuickStart(t *testing.T) {
	if clusters == nil && (os.Geteuid() != 0 || testing.Short()) {
		t.Skip("SKIPPED: it makes real clusters, for which it must be root and not -short")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(root, "hack", "quickstart")
	given := clusters != nil
	if given {
		clusters.Step(t)
		env.Unpeered(t, rome, milan)
		if !t.Run("before", func(t *testing.T) {
			for _, c := range clusters.Clusters {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					c.Uninstalled(t)
				})
			}
		}) {
			t.FailNow()
		}
		for _, c := range clusters.Clusters {
			t.Cleanup(func() { c.Kubectl(t, "delete", "namespace", "liqo-demo", "--ignore-not-found", "--timeout=120s") })
		}
	} else if !*keep {
		t.Cleanup(func() { execution.Run("", filepath.Join(root, "bin", "playground"), "down") })
	}
	up := execution.Run("", "sh", "-c", script+" 2>&1") // as a reader sees it
	if up.Code != 0 {
		t.Fatal(up)
	}
	t.Logf("from nothing to the shop: %.0f s", up.Took.Seconds())
	if !given {
		if clusters, err = env.Up(root, env.Pair, true); err != nil {
			t.Fatal(err)
		}
		rome, milan = clusters.Clusters[0], clusters.Clusters[1]
	}
	t.Run("output", func(t *testing.T) { output(t, up.Out) })
	t.Run("late", func(t *testing.T) { late(t, root, rome) })
	t.Run("shop", func(t *testing.T) { shop(t, rome, milan) })
	if *keep {
		return
	}
	down := execution.Run("", "sh", "-c", script+" down 2>&1")
	if down.Code != 0 {
		t.Fatal(down)
	}
	t.Logf("down: %.0f s", down.Took.Seconds())
	t.Run("guide", func(t *testing.T) { compare(t, root, commands(up.Out+down.Out)) })
	t.Run("nothing is left", func(t *testing.T) {
		if given {
			for _, c := range clusters.Clusters {
				c.NothingOfLiqo(t, "liqo-demo")
			}
		} else {
			gone(t)
		}
	})
}

// commands are those that a script has printed before it ran them.
func commands(output string) (all []string) {
	for line := range strings.Lines(output) {
		if command, is := strings.CutPrefix(strings.TrimSpace(line), "$ "); is {
			all = append(all, guide.Parse(command).Line)
		}
	}
	return all
}

// compare checks that the script ran every command of the guide, in that order.
func compare(t *testing.T, root string, ran []string) {
	text, err := guide.Read(root, "quick-start")
	if err != nil {
		t.Fatal(err)
	}
	listed, at := 0, 0
	for _, command := range guide.Commands(text) {
		if own.MatchString(command.Line) {
			continue
		}
		listed++
		next := slices.IndexFunc(ran[at:], func(one string) bool { return alike(one) == alike(command.Line) })
		if next < 0 {
			t.Errorf("the guide has %q here, which the script has not run after %q", command.Line, ran[max(at-1, 0)])
			continue
		}
		at += next + 1
	}
	if listed < 15 {
		t.Errorf("the guide has %d commands, which is too few to be it", listed)
	}
}

// alike drops quotes, which do not matter for a command.
func alike(command string) string { return strings.NewReplacer(`"`, "", `'`, "").Replace(command) }

// output checks what the commands printed.
func output(t *testing.T, text string) {
	parts := strings.Split(text, "\n$ ")
	after := func(command string) string {
		for _, part := range parts {
			if strings.HasPrefix(part, command) {
				_, printed, _ := strings.Cut(part, "\n")
				return printed
			}
		}
		t.Errorf("%q was not run", command)
		return ""
	}
	for command, wants := range map[string][]string{
		"kubectl get foreignclusters":          {`milan +OutOfBand +Established +None +Established +Established`},
		"kubectl get nodes":                    {`liqo-milan +Ready +agent`},
		"liqoctl offload namespace liqo-demo":  {`Offloading of namespace "liqo-demo" correctly enabled`, `Offloading completed successfully`},
		"kubectl get pod -n liqo-demo -o wide": {`nginx-local +1/1 +Running .* rome-`, `nginx-remote +1/1 +Running .* liqo-milan`},
		"kubectl describe service liqo-demo":   {`Endpoints: +[0-9.]+:80,[0-9.]+:80`},
		"$ASK ${LOCAL_POD_IP}":                 {`^Server`},
		"$ASK ${REMOTE_POD_IP}":                {`^Server`},
		"$ASK liqo-demo.liqo-demo":             {`^Server`},
		"$ASK --output /dev/null":              {`^200\n`},
	} {
		printed := after(command)
		for _, want := range wants {
			if !regexp.MustCompile(want).MatchString(printed) {
				t.Errorf("%s: want %q in\n%s", command, want, printed)
			}
		}
	}
	if !strings.Contains(text, "It runs. To go on") {
		t.Errorf("it does not print how to go on:\n%s", text)
	}
	if strings.Count(text, "--auth-token [redacted]") != 1 || regexp.MustCompile(`--auth-token +[^\[]`).MatchString(text) {
		t.Error("the peering's token was printed")
	}
}

// service is a line of the shop's table.
type service struct{ Service, Cluster, Node, Pod, Problem string }

// shop buys something through a port-forward, moves a service from one cluster to the other, and removes one.
func shop(t *testing.T, rome, milan *env.Cluster) {
	page := forward(t, rome)
	table := func() (all map[string]service, err error) {
		var answer struct{ Services []service }
		body, err := page.get("/api/services")
		if err == nil {
			err = json.Unmarshal([]byte(body), &answer)
		}
		all = map[string]service{}
		for _, one := range answer.Services {
			all[one.Service] = one
		}
		return all, err
	}
	until := func(what string, is func(map[string]service) bool) {
		t.Helper()
		env.Eventually(t, env.Hang, what, func() (string, bool) {
			all, err := table()
			return fmt.Sprint(all, err), err == nil && len(all) == 8 && is(all)
		})
	}
	well := func(all map[string]service) bool {
		for _, one := range all {
			if one.Problem != "" {
				return false
			}
		}
		return true
	}
	until("all eight services answer", well)
	for where, patch := range map[string]string{milan.Name: toMilan, rome.Name: toRome} {
		rome.Kubectl(t, "patch", "deployment", "cart", "-n", "liqo-demo", "-p", patch)
		until("the cart is in "+where, func(all map[string]service) bool { return well(all) && all["cart"].Cluster == where })
	}
	until("the page comes from rome", func(all map[string]service) bool { return all["frontend"].Cluster == rome.Name })

	// A service that has not called the cart yet may call the pod that the cart has left; the shop shows that, and its user tries again.
	var product, number []string
	env.Eventually(t, env.Hang, "the page has products", func() (string, bool) {
		body, err := page.get("/")
		product = regexp.MustCompile(`name="product" value="([^"]+)"`).FindStringSubmatch(body)
		return fmt.Sprint(err, body), err == nil && product != nil
	})
	env.Eventually(t, env.Hang, "what is in the cart can be ordered", func() (string, bool) {
		body, err := page.post("/cart", url.Values{"product": {product[1]}, "quantity": {"2"}})
		number = regexp.MustCompile(`name="number" value="([^"]+)"`).FindStringSubmatch(body)
		return fmt.Sprint(err, body), err == nil && number != nil
	})
	env.Eventually(t, env.Hang, "the order is confirmed", func() (string, bool) {
		body, err := page.post("/orders", url.Values{"number": {number[1]}}) // the same number: it is placed once
		return fmt.Sprint(err, body), err == nil && strings.Contains(body, "Order "+number[1])
	})

	rome.Kubectl(t, "scale", "deployment", "recommendation", "-n", "liqo-demo", "--replicas=0")
	until("recommendation alone is missing", func(all map[string]service) bool {
		gone := all["recommendation"].Problem != ""
		delete(all, "recommendation")
		return gone && well(all)
	})
	rome.Kubectl(t, "scale", "deployment", "recommendation", "-n", "liqo-demo", "--replicas=1")
	until("recommendation is back", well)
}

// The patch that forces a Deployment into milan is the guide's; the one that forces it into rome must leave Kubernetes no choice.
const (
	toMilan = `{"spec":{"template":{"spec":{"nodeSelector":{"liqo.io/type":"virtual-node"},"affinity":null}}}}`
	toRome  = `{"spec":{"template":{"spec":{"nodeSelector":null,"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":` +
		`{"nodeSelectorTerms":[{"matchExpressions":[{"key":"liqo.io/type","operator":"NotIn","values":["virtual-node"]}]}]}}}}}}}`
)

// browser reads the shop's page.
type browser struct {
	at     string
	client *http.Client
}

// forward starts the guide's port-forward, on a port that is free.
func forward(t *testing.T, rome *env.Cluster) browser {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := rome.Command(ctx, "port-forward", "-n", "liqo-demo", "service/frontend-external", ":80")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "Forwarding from 127.0.0.1:") {
		t.Fatalf("kubectl port-forward prints %q", lines.Text())
	}
	go func() {
		for lines.Scan() { // kubectl would block on a full pipe
		}
	}()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return browser{"http://" + strings.Fields(lines.Text())[2], &http.Client{Jar: jar, Timeout: 20 * time.Second}}
}

func (b browser) get(path string) (string, error) { return answered(b.client.Get(b.at + path)) }

// post sends a form of the page, and returns the page that follows.
func (b browser) post(path string, form url.Values) (string, error) {
	return answered(b.client.PostForm(b.at+path, form))
}

func answered(response *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s\n%s", response.Request.URL.Path, response.Status, body)
	}
	return string(body), err
}

// gone checks that nothing of the clusters is left on the machine.
func gone(t *testing.T) {
	if r := clusters.Playground("status"); r.Code == 0 && strings.Contains(r.Out, "rome") {
		t.Errorf("after the end: %s", r)
	}
	left, err := filepath.Glob("/run/netns/lpg-*")
	if err != nil || len(left) > 0 {
		t.Errorf("network namespaces are left: %v %v", left, err)
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil || strings.Contains(string(mounts), "/var/lib/liqo-playground/") {
		t.Errorf("mounts are left (%v):\n%s", err, mounts)
	}
}
