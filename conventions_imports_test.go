// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The laws on who may import what, and on modules.

const module = "liqo.io/liqo"

// layers orders the product: imports point from a higher number to a lower one.
// The four domains share a number and never import each other.
var layers = map[string]int{
	"cmd":                 6,
	"internal/cli":        5,
	"internal/action":     4,
	"internal/network":    3,
	"internal/offloading": 3,
	"internal/peering":    3,
	"internal/storage":    3,
	"internal/kube":       2,
	"apis":                1,
	"deployments":         1, // the chart, as bytes
}

// outside are folders with Go code that take no part in the layers.
var outside = []string{"hack", "test", "examples"}

// testOnly are packages that only tests import: test API servers, and the controllers that run there.
var testOnly = []string{"internal/kube/kubetest", "internal/offloading/controllertest", "internal/offloading/shadowtest", "internal/peering/peeringtest"}

func isTestOnly(dir string) bool {
	return slices.ContainsFunc(testOnly, func(of string) bool { return dir == of || strings.HasPrefix(dir, of+"/") })
}

// layerOf returns the layer of a folder or import path of the product.
func layerOf(dir string) string {
	for layer := range layers {
		if dir == layer || strings.HasPrefix(dir, layer+"/") {
			return layer
		}
	}
	return ""
}

func productSources(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(sources(t)), func(file source) bool { return moduleOf(t, file.path) != "." })
}

func TestImportDirection(t *testing.T) {
	for _, file := range productSources(t) {
		dir := path.Dir(file.path)
		layer := layerOf(dir)
		top, _, _ := strings.Cut(dir, "/")
		if dir == "." || slices.Contains(outside, top) {
			if top == "test" {
				// What is not linked cannot be relied on: these tests must work against any build.
				for _, imported := range file.imports() {
					if strings.HasPrefix(imported, module+"/internal/") {
						t.Errorf("%s imports %s: tests under test/ know kubeconfigs and programs, not our code", file.path, imported)
					}
				}
			}
			continue
		}
		if layer == "" {
			t.Errorf("%s: no layer owns this folder; internal/ holds %v and nothing else (ARCHITECTURE.md)", file.path, layers)
			continue
		}
		if file.test || isTestOnly(dir) && layer != "internal/kube" {
			continue // a test may bring its own world
		}
		for _, imported := range file.imports() {
			inner, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			switch to := layerOf(inner); {
			case isTestOnly(inner) && !isTestOnly(dir):
				t.Errorf("%s imports %s: that is for _test.go files only", file.path, imported)
			case to == "":
				t.Errorf("%s imports %s, which no layer owns", file.path, imported)
			case to == layer || layers[to] < layers[layer]:
			case layers[to] == layers[layer]:
				t.Errorf("%s imports %s: a domain never imports another; meet in an API object, or declare an interface here and let cmd fill it", file.path, imported)
			default:
				t.Errorf("%s imports %s: imports point cmd → cli → action → domains → kube → apis", file.path, imported)
			}
		}
	}
}

// The public API must be importable by anyone at no price.
func TestAPIsImportAlmostNothing(t *testing.T) {
	allowed := []string{"k8s.io/api/", "k8s.io/apimachinery/", module + "/apis/"}
	for _, file := range productSources(t) {
		if layerOf(path.Dir(file.path)) != "apis" || file.test || strings.HasPrefix(file.path, "apis/applyconfiguration/") {
			continue
		}
		for _, imported := range file.imports() {
			if !standard(imported) && !slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(imported, prefix) }) {
				t.Errorf("%s imports %s: apis/ may import the standard library, k8s.io/api and k8s.io/apimachinery only", file.path, imported)
			}
		}
	}
}

// pure are the packages and files that decide and must not look at the world:
// patterns of folders (no suffix) and of files (*.go). Those not there yet bind
// as soon as they are. exceptions name what one of them may import all the same.
var pure = []string{
	"internal/network/ipam", "internal/network/pace", "internal/network/plan", "internal/offloading/reflection/project",
	"internal/offloading/reflection/project/podspec", "internal/offloading/reflection/project/podstatus",
	"internal/offloading/reflection/disruption", "internal/offloading/shadow", "internal/offloading/quota", "internal/offloading/podplan",
	"internal/action/install/clusters", "internal/offloading/networks/networks.go", "internal/offloading/lifecycle",
	"internal/offloading/endpoints", "internal/offloading/verdict", "internal/offloading/metadata", "internal/offloading/*/plan.go",
	"internal/offloading/*/status.go", "internal/offloading/kubelet", "internal/offloading/remotename", "internal/offloading/provider",
	"internal/network/hoststate", "internal/network/plan/carriers", "internal/network/keyring", "internal/network/networks",
	"internal/network/tunnelstatus", "internal/network/networkconfig/status.go",
	"internal/peering/conditions", "internal/peering/spec", "internal/peering/grant", "internal/peering/reach",
	"internal/peering/resourceslice/status.go", "internal/peering/tenant/tenant.go", "internal/offloading/webhook/strategy.go",
	"internal/storage/locality.go", "internal/storage/request.go", "internal/storage/volume.go", "internal/storage/claims/plan.go",
	"internal/storage/claims/project.go", "internal/storage/data", "internal/storage/home/astray.go", "internal/storage/home/keep.go",
	"internal/storage/move/plan",
	"internal/*/*_status.go", "internal/*/*_plan.go", "internal/peering/cleanup/plan.go",
	"internal/offloading/virtualkubelet/nodeobject.go", "internal/offloading/virtualkubelet/nodelabels.go", "internal/offloading/exposition",
	"internal/offloading/choice", "internal/offloading/contents", "internal/offloading/kinds",
	"internal/offloading/reflection/events/warning.go", "internal/offloading/hosts/hosts.go", "internal/offloading/kubeletapi/streampath.go",
	"internal/kube/domain", "internal/kube/storageclass", "internal/offloading/names", "internal/offloading/standby/plan.go",

	"playground/internal/cluster", "playground/internal/fault", "playground/internal/nat", "playground/internal/scenario",
	"playground/internal/spec", "playground/internal/topology",

	"test/soak/plan",
}

var pureExceptions = map[string]string{
	// Names of images; no image is read or built.
	"playground/internal/cluster": module + "/playground/internal/image",
}

// effects match import paths that touch the world.
var effects = regexp.MustCompile(`^(os|os/.*|net/http|net/rpc|syscall|log|log/.*|math/rand|math/rand/v2|` +
	`golang\.org/x/sys(/.*)?|github\.com/vishvananda/.*|github\.com/google/nftables(/.*)?|sigs\.k8s\.io/knftables|golang\.zx2c4\.com/.*|` +
	`k8s\.io/client-go/(kubernetes|rest|tools|dynamic|informers|listers|discovery|util)(/.*)?|k8s\.io/klog(/.*)?|github\.com/go-logr/.*|` +
	`sigs\.k8s\.io/controller-runtime(/.*)?)$`)

// clock holds the functions of package time that read the clock or wait.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func isPure(file string) bool {
	for _, pattern := range pure {
		what := file
		if path.Ext(pattern) != ".go" {
			what = path.Dir(file)
		}
		if matched, err := path.Match(pattern, what); err == nil && matched {
			return true
		}
	}
	return false
}

func TestPurePackages(t *testing.T) {
	// A pure package may use, of our own, only packages without effects.
	touches := map[string]string{}
	for _, file := range sources(t) {
		if file.test {
			continue
		}
		for _, imported := range file.imports() {
			if effects.MatchString(imported) {
				touches[module+"/"+path.Dir(file.path)] = imported
			}
		}
	}
	for _, file := range sources(t) {
		if !isPure(file.path) || file.test {
			continue
		}
		for _, imported := range file.imports() {
			if effects.MatchString(imported) {
				t.Errorf("%s imports %s: this is a pure package, it decides from values; hand the fact in, or move the effect to its applier", file.path, imported)
			}
			if through, ok := touches[imported]; ok && pureExceptions[path.Dir(file.path)] != imported {
				t.Errorf("%s imports %s, which imports %s: a pure package uses pure packages only", file.path, imported, through)
			}
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok {
				if from, ok := selector.X.(*ast.Ident); ok && from.Name == "time" && slices.Contains(clock, selector.Sel.Name) {
					t.Errorf("%s:%d: time.%s in a pure package; take the time as an argument", file.path, file.line(node.Pos()), selector.Sel.Name)
				}
			}
			return true
		})
	}
}

// ---- modules ----

// modules is the closed list; the reasons are in docs/adr/0002-modules.md.
var modules = []string{
	".", "hack/tools", "playground", "terraform",
	"playground/components/cni", "playground/components/containerd", "playground/components/coredns", "playground/components/kube",
	"playground/components/kwok", "playground/components/metrics-server", "playground/components/runc",
	"test/programs/certmanager", "test/programs/operator", "test/programs/prometheus", "test/programs/traefik",
}

// replacing are modules of foreign programs whose own go.mod replaces libraries, without which they cannot be built.
var replacing = []string{"test/programs/traefik"}

// moduleOf returns the folder of the module that owns the file.
func moduleOf(t *testing.T, file string) string {
	t.Helper()
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(path.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	return "."
}

// goMod is the part of `go mod edit -json` that the laws look at.
type goMod struct {
	dir     string
	Module  struct{ Path string }
	Go      string
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
	Tool []struct{ Path string }
}

func goMods(t *testing.T) (all []goMod) {
	t.Helper()
	for _, file := range files(t) {
		if path.Base(file) != "go.mod" {
			continue
		}
		text := run(t, ".", "go", "mod", "edit", "-json", file)
		mod := goMod{dir: path.Dir(file)}
		if err := json.Unmarshal([]byte(text), &mod); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, mod)
	}
	return all
}

func TestModules(t *testing.T) {
	mods := goMods(t)
	product := mods[slices.IndexFunc(mods, func(m goMod) bool { return m.dir == "." })]
	for _, mod := range mods {
		if !slices.Contains(modules, mod.dir) {
			t.Errorf("%s/go.mod: not in the list of modules; a new module is a decision, see docs/adr/0002-modules.md", mod.dir)
		}
		if want := path.Join(module, mod.dir); mod.Module.Path != want {
			t.Errorf("%s/go.mod: the module calls itself %s, want %s", mod.dir, mod.Module.Path, want)
		}
		if mod.Go != product.Go {
			t.Errorf("%s/go.mod has go %s, the root has go %s: one toolchain builds all; run: go mod edit -go=%s", mod.dir, mod.Go, product.Go, product.Go)
		}
		for _, replace := range mod.Replace {
			inTree := strings.HasPrefix(replace.New.Path, "../") && !strings.HasPrefix(path.Join(mod.dir, replace.New.Path), "..")
			// k8s.io/kubernetes requires its staging modules as v0.0.0, so go.mod must replace them.
			staging := strings.HasPrefix(replace.Old.Path, "k8s.io/") && replace.New.Path == replace.Old.Path && replace.New.Version != ""
			if !inTree && !staging && !slices.Contains(replacing, mod.dir) {
				t.Errorf("%s/go.mod replaces %s by %s %s: only ../ inside this repository and pinned k8s.io staging modules may be replaced",
					mod.dir, replace.Old.Path, replace.New.Path, replace.New.Version)
			}
		}
	}
}

// TestDependencies holds every direct dependency to a line with a reason.
func TestDependencies(t *testing.T) {
	const list = "hack/dependencies.txt"
	rows := table(t, list, 2)
	used := map[string]bool{}
	for _, mod := range goMods(t) {
		direct := map[string]bool{}
		required := []string{}
		for _, require := range mod.Require {
			required = append(required, require.Path)
			if !require.Indirect {
				direct[require.Path] = true
			}
		}
		// A module that is imported or built as a tool is direct, whatever its comment in go.mod.
		for _, imported := range importsOf(t, mod) {
			if owner := longestPrefix(imported, required); owner != "" {
				direct[owner] = true
			}
		}
		for dependency := range direct {
			key := mod.dir + " " + dependency
			used[key] = true
			if _, ok := rows[key]; !ok && !strings.HasPrefix(dependency, module) {
				t.Errorf("new direct dependency; if no part of it can be avoided, add to %s:\n%s  WHY", list, key)
			}
		}
	}
	for key := range rows {
		if !used[key] {
			t.Errorf("%s: %q is no direct dependency any more; remove the line", list, key)
		}
	}
}

// importsOf returns what the module's own files import and what it builds as tools.
func importsOf(t *testing.T, mod goMod) (paths []string) {
	t.Helper()
	for _, tool := range mod.Tool {
		paths = append(paths, tool.Path)
	}
	for _, file := range sources(t) {
		if moduleOf(t, file.path) == mod.dir {
			paths = append(paths, file.imports()...)
		}
	}
	return paths
}

func longestPrefix(imported string, modules []string) (longest string) {
	for _, candidate := range modules {
		if (imported == candidate || strings.HasPrefix(imported, candidate+"/")) && len(candidate) > len(longest) {
			longest = candidate
		}
	}
	return longest
}

// The product must be able to choose its Kubernetes libraries without asking
// the playground, which embeds a whole Kubernetes.
func TestProductDoesNotSeeKubernetesServers(t *testing.T) {
	// Our go.mod names etcd's server only if a package of it is imported, from whatever depth. The list of all
	// modules does name it, because k8s.io/apiextensions-apiserver mentions it in its own go.mod.
	for _, mod := range goMods(t) {
		for _, require := range mod.Require {
			if mod.dir == "." && strings.HasPrefix(require.Path, "go.etcd.io/etcd/server") {
				t.Errorf("go.mod requires %s; find who imports it with: go mod why -m %s", require.Path, require.Path)
			}
		}
	}
	for line := range strings.Lines(run(t, ".", "go", "list", "-m", "all")) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "k8s.io/kubernetes" || strings.HasPrefix(name, module+"/playground") {
			t.Errorf("the product's module list holds %s; find who brings it with: go mod graph", name)
		}
	}
}

// forbidden are modules that one of our programs must not link.
var forbidden = []struct {
	dir, program string
	prefixes     []string
	why          string
}{
	{
		"playground", ".",
		[]string{"k8s.io/", "sigs.k8s.io/", "go.etcd.io/"},
		"the playground program is also the first process of every node, so its memory counts",
	},
	{
		".", "./cmd/liqo",
		[]string{"helm.sh/", "k8s.io/kubernetes", "go.etcd.io/etcd/server", "github.com/aws/", "cloud.google.com/", "github.com/Azure/"},
		"every role would carry it",
	},
}

func TestProgramsStayLean(t *testing.T) {
	for _, law := range forbidden {
		if _, err := os.Stat(path.Join(law.dir, law.program, "main.go")); err != nil {
			continue // not written yet
		}
		linked := run(t, law.dir, "go", "list", "-buildvcs=false", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", law.program)
		seen := map[string]bool{}
		for line := range strings.Lines(linked) {
			name := strings.TrimSpace(line)
			if !seen[name] && slices.ContainsFunc(law.prefixes, func(prefix string) bool { return strings.HasPrefix(name+"/", prefix) }) {
				t.Errorf("%s/%s links %s; forbidden, because %s", law.dir, law.program, name, law.why)
			}
			seen[name] = true
		}
	}
}

// standard recognizes the standard library by its first path element.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// run returns the standard output of a command that must succeed.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	output, err := cmd.Output()
	if err != nil {
		stderr := ""
		if exit, ok := err.(*exec.ExitError); ok {
			stderr = string(exit.Stderr)
		}
		t.Fatalf("%s in %s: %v\n%s", strings.Join(args, " "), dir, err, stderr)
	}
	return string(output)
}

var updateLinked = flag.Bool("update-linked", false, "write the list of packages linked into cmd/liqo")

// TestLinkedPackages: cmd/liqo/deps.txt lists every package that is linked into the server program, without the standard library. So the diff
// of a commit shows what an import brings along. To accept a change: go test -run TestLinkedPackages . -update-linked
func TestLinkedPackages(t *testing.T) {
	const list = "cmd/liqo/deps.txt"
	command := exec.Command("go", "list", "-deps", "-tags", "grpcnotrace", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/liqo")
	command.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOWORK=off")
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	linked := strings.Fields(string(output))
	slices.Sort(linked)
	if *updateLinked {
		if err := os.WriteFile(list, []byte(strings.Join(linked, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(strings.Fields(string(read(t, list))), linked); diff != "" {
		t.Errorf("%s is not up to date (-listed +linked). If each new package is wanted, run: go test -run TestLinkedPackages . -update-linked\n%s", list, diff)
	}
}

// TestMetricsAreRows: only package metric makes metrics, each of a row. So what a process registers is what docs/reference/metrics.md lists.
func TestMetricsAreRows(t *testing.T) {
	for _, file := range productSources(t) {
		top, _, _ := strings.Cut(file.path, "/")
		if file.test || slices.Contains(outside, top) || strings.HasPrefix(file.path, "internal/kube/metric/") {
			continue
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok {
				from, ok := selector.X.(*ast.Ident)
				makes := strings.HasPrefix(selector.Sel.Name, "New") && selector.Sel.Name != "NewRegistry" || strings.HasPrefix(selector.Sel.Name, "MustNew")
				if ok && (from.Name == "promauto" || from.Name == "prometheus" && makes) {
					t.Errorf("%s:%d: %s.%s: declare a row of internal/kube/metric", file.path, file.line(node.Pos()), from.Name, selector.Sel.Name)
				}
			}
			return true
		})
	}
}

// TestEventsAreReasons: no event has a reason that apis/reasons, or a condition of a kind, does not explain to users.
func TestEventsAreReasons(t *testing.T) {
	sends := map[string]int{"Eventf": 3, "warn": 1, "Warn": 1, "Normal": 0, "Warning": 0, "Failed": 2, "Changed": 2} // which argument is the reason
	for _, file := range productSources(t) {
		if file.test || !slices.Contains([]string{"internal/network", "internal/offloading", "internal/peering", "internal/storage"}, layerOf(path.Dir(file.path))) {
			continue
		}
		report := func(at ast.Expr) {
			if literal, ok := at.(*ast.BasicLit); ok && reasonForm.MatchString(literal.Value) {
				t.Errorf("%s:%d: %s: name the reason in apis/reasons, with a comment for users", file.path, file.line(at.Pos()), literal.Value)
			}
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.CallExpr:
				name := ""
				switch function := node.Fun.(type) {
				case *ast.SelectorExpr:
					name = function.Sel.Name
				case *ast.Ident:
					name = function.Name
				}
				if at, ok := sends[name]; ok && len(node.Args) > at {
					report(node.Args[at])
				}
			case *ast.ValueSpec:
				if node.Type == nil && len(node.Values) == 1 && strings.HasPrefix(strings.ToLower(node.Names[0].Name), "reason") {
					report(node.Values[0])
				}
			}
			return true
		})
	}
}

var reasonForm = regexp.MustCompile(`^"[A-Z][A-Za-z]+"$`)
