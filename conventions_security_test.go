// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The conventions on calls that have become vulnerabilities elsewhere. Each rule has an example that it must find and one that it must not, so that a
// rule which finds nothing any more is noticed, and a list of the places that may break it, each with a reason.

type securityRule struct {
	// remedy completes "write ...".
	remedy string
	// find reports the places of a file that break the rule.
	find func(file *ast.File, report func(at ast.Node))
	// bad and good are bodies of a function, after imports that are added as needed. bad has one breach on each line.
	bad, good string
	// accepted maps files to reasons.
	accepted map[string]string
}

var securityRules = map[string]securityRule{
	"random": {
		remedy: "crypto/rand; math/rand is predictable, and only for delays and the like",
		find:   imports(`^math/rand(/v2)?$`),
		bad:    "rand.Int()", good: "crand.Text()",
		accepted: map[string]string{
			"internal/peering/resourceslice/controller.go": "delays of refreshes",
			"internal/network/probe/prober.go":             "number of a sender of probes, which proves nothing",
			"internal/network/agent/gateway/gateway.go":    "delays of dials", "internal/network/carrier/hub.go": "first loopback address, on one host",
			"internal/action/install/chart.go": "name of a cluster", "internal/kube/fairqueue/queue.go": "delays", "internal/kube/manager/waitwatch.go": "delays",
		},
	},
	"hashes": {
		remedy: "SHA-256; MD5, SHA-1, DES and RC4 are broken",
		find:   imports(`^crypto/(md5|sha1|des|rc4)$`),
		bad:    "md5.New()", good: "sha256.New()",
	},
	"debugging": {
		remedy: "no handlers that register themselves in http.DefaultServeMux",
		find:   imports(`^(net/http/pprof|expvar)$`),
		bad:    "pprof.Index", good: "pprof2.Index",
	},
	"programs": {
		remedy: "a call of a library: the product starts no programs, so no input becomes a command line",
		find:   imports(`^(os/exec|plugin)$`),
		bad:    `exec.Command("sh", "-c", x)`, good: "execute(x)",
	},
	"certificates": {
		remedy: "a verification: RootCAs, or VerifyConnection with a pinned key",
		find:   setting("InsecureSkipVerify", "Insecure"),
		bad:    "_ = tls.Config{InsecureSkipVerify: true}\nx.InsecureSkipVerify = yes\n_ = rest.TLSClientConfig{Insecure: yes}\nx.TLSClientConfig.Insecure = true",
		good:   "_ = tls.Config{InsecureSkipVerify: false}",
		accepted: map[string]string{
			"internal/peering/auth/client/client.go":     "answers are signed with the pinned key, inside TLS (ADR 17)",
			"internal/network/carrier/listen.go":         "of WebSockets: accepts any Origin, as no browser comes",
			"internal/offloading/metricagent/setup.go":   "the administrator chooses it with --kubelet-insecure-tls, as of metrics-server",
			"internal/network/carrier/transport/dial.go": "WireGuard inside proves the other side (ADR 21)",
		},
	},
	"plaintext": {
		remedy: "credentials.NewTLS; without TLS only within a pod",
		find:   calls("insecure.NewCredentials", "grpc.WithInsecure"),
		bad:    "grpc.WithTransportCredentials(insecure.NewCredentials())", good: "credentials.NewTLS(c)",
		accepted: map[string]string{"internal/peering/plugin/client.go": "the resource plugin, as documented"},
	},
	"versions": {
		remedy: "tls.VersionTLS12 or later",
		find:   oldVersions,
		bad:    "_ = tls.Config{MinVersion: tls.VersionTLS10}\nx.MinVersion = 0x0301\nx.MaxVersion = tls.VersionTLS11",
		good:   "x.MinVersion = tls.VersionTLS13\n_ = tls.Config{MinVersion: tls.VersionTLS12}",
	},
	"clients": {
		remedy: "an http.Client with a Timeout or a Transport with deadlines: the default client waits for ever, and follows redirects with a token",
		find:   defaultClients,
		bad:    "http.Get(u)\nhttp.DefaultClient.Do(r)\n_ = http.Client{}\n_ = &http.Client{CheckRedirect: f}\nhttp.PostForm(u, v)\n_ = http.DefaultTransport",
		good:   "_ = http.Client{Timeout: d}\n_ = http.Client{Transport: t}",
	},
	"bodies": {
		remedy: "io.ReadAll(io.LimitReader(r, most)): the other side decides how much it sends",
		find:   unboundedReads,
		bad:    "io.ReadAll(r.Body)\nioutil.ReadAll(x)\nio.ReadAll(bufio.NewReader(r))",
		good:   "io.ReadAll(io.LimitReader(r, 5))\nio.ReadAll(http.MaxBytesReader(w, r, 5))",
	},
	"modes": {
		remedy: "a mode of at most 0600 for files and 0700 for folders",
		find:   wideModes,
		bad:    "os.WriteFile(n, b, 0o644)\nos.OpenFile(n, f, 0o640)\nos.MkdirAll(n, 0o755)\nos.Chmod(n, mode)\nroot.WriteFile(n, b, 0o666)\nos.Create(n)",
		good:   "os.WriteFile(n, b, 0o600)\nos.MkdirAll(n, 0o700)\nos.OpenFile(n, f, 0o400)",
		accepted: map[string]string{
			"cmd/liqo/gateway.go":                          "/proc/sys/net/ipv4/ip_forward, which exists",
			"internal/network/host/userspace/userspace.go": "/dev/net of the container, which holds a device and no secret",
		},
	},
	"secrets": {
		remedy: "the name of the secret, not its value, into errors, logs, events and output",
		find:   printedSecrets,
		bad: "fmt.Errorf(\"%v\", token)\nfmt.Sprintf(\"%s\", grant.Token)\nlog.Info(\"x\", \"token\", s.token)\nfmt.Errorf(\"%v\", " +
			"secret)\nrecorder.Eventf(o, \"\", \"\", \"%s\", password)\n" +
			"fmt.Println(secret.Data)\nfmt.Fprintf(w, \"%s\", privateKey)\nlogger.WithValues(\"x\", kubeconfig)\nerrors.New(\"x\" + " +
			"token)\nfmt.Printf(\"%q\", string(token))\nfmt.Errorf(\"%s\", \"a \"+x.Password)",
		good: "fmt.Errorf(\"%s: %w\", secret.Name, err)\nfmt.Errorf(\"%d\", len(token))\nlog.Info(\"token\", \"secret\", " +
			"klog.KObj(secret))\nfmt.Sprintf(\"%s\", tokenName)",
		accepted: map[string]string{"internal/action/peer/facts.go": "an error about the token, which holds no token"},
	},
}

// TestSecurityRules applies the rules to the product, and each rule to its own examples.
func TestSecurityRules(t *testing.T) {
	for name, rule := range securityRules {
		for line, statement := range strings.Split(rule.bad, "\n") {
			if breaches(t, rule, statement) == 0 {
				t.Errorf("rule %s does not find its example %d: %s", name, line+1, statement)
			}
		}
		for statement := range strings.SplitSeq(rule.good, "\n") {
			if breaches(t, rule, statement) != 0 {
				t.Errorf("rule %s refuses what is right: %s", name, statement)
			}
		}
		used := map[string]bool{}
		for _, file := range productSources(t) {
			top, _, _ := strings.Cut(file.path, "/")
			if file.test || file.generated || slices.Contains(outside, top) ||
				isTestOnly(path.Dir(file.path)) || strings.HasPrefix(file.path, "deployments/liqo/charttest/") {
				continue
			}
			rule.find(file.syntax, func(at ast.Node) {
				used[file.path] = true
				if rule.accepted[file.path] == "" {
					t.Errorf("%s:%d: write %s; or accept the file in securityRules, %q, with a reason", file.path, file.line(at.Pos()), rule.remedy, name)
				}
			})
		}
		for file := range maps.Keys(rule.accepted) {
			if !used[file] {
				t.Errorf("rule %s accepts %s, which does not break it: remove the line", name, file)
			}
		}
	}
}

// breaches returns how often an example breaks a rule.
func breaches(t *testing.T, rule securityRule, statement string) (n int) {
	t.Helper()
	var imported strings.Builder
	for name, from := range map[string]string{
		"rand": "math/rand/v2", "crand": "crypto/rand", "md5": "crypto/md5", "sha256": "crypto/sha256", "pprof": "net/http/pprof",
		"pprof2": "runtime/pprof", "exec": "os/exec",
	} {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(statement) {
			imported.WriteString("import " + name + " " + strconv.Quote(from) + "\n")
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "example.go", "package x\n"+imported.String()+"func x() {\n"+statement+"\n}\n", parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("example %q: %v", statement, err)
	}
	rule.find(file, func(ast.Node) { n++ })
	return n
}

func imports(pattern string) func(*ast.File, func(ast.Node)) {
	forbidden := regexp.MustCompile(pattern)
	return func(file *ast.File, report func(ast.Node)) {
		for _, one := range file.Imports {
			if forbidden.MatchString(strings.Trim(one.Path.Value, `"`)) {
				report(one)
			}
		}
	}
}

// selected returns X.Y of an expression, or the last names of a longer one.
func selected(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return last(selected(e.X)) + "." + e.Sel.Name
	}
	return ""
}

func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// settings calls visit for each field that a literal or an assignment sets.
func settings(file *ast.File, visit func(at ast.Node, field string, value ast.Expr)) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.KeyValueExpr:
			visit(node, selected(node.Key), node.Value)
		case *ast.AssignStmt:
			for i, left := range node.Lhs {
				if field, is := left.(*ast.SelectorExpr); is && i < len(node.Rhs) {
					visit(node, field.Sel.Name, node.Rhs[i])
				}
			}
		}
		return true
	})
}

func setting(fields ...string) func(*ast.File, func(ast.Node)) {
	return func(file *ast.File, report func(ast.Node)) {
		settings(file, func(at ast.Node, field string, value ast.Expr) {
			if slices.Contains(fields, field) && selected(value) != "false" {
				report(at)
			}
		})
	}
}

func oldVersions(file *ast.File, report func(ast.Node)) {
	settings(file, func(at ast.Node, field string, value ast.Expr) {
		if (field == "MinVersion" || field == "MaxVersion") && !slices.Contains([]string{"tls.VersionTLS12", "tls.VersionTLS13"}, selected(value)) {
			report(at)
		}
	})
}

// called calls visit for each call.
func called(file *ast.File, visit func(call *ast.CallExpr, name string)) {
	ast.Inspect(file, func(node ast.Node) bool {
		if call, is := node.(*ast.CallExpr); is {
			visit(call, selected(call.Fun))
		}
		return true
	})
}

func calls(names ...string) func(*ast.File, func(ast.Node)) {
	return func(file *ast.File, report func(ast.Node)) {
		called(file, func(call *ast.CallExpr, name string) {
			if slices.Contains(names, name) {
				report(call)
			}
		})
	}
}

func defaultClients(file *ast.File, report func(ast.Node)) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.SelectorExpr:
			if slices.Contains([]string{"http.Get", "http.Post", "http.PostForm", "http.Head", "http.DefaultClient", "http.DefaultTransport"}, selected(node)) {
				report(node)
			}
		case *ast.CompositeLit:
			bounded := slices.ContainsFunc(node.Elts, func(element ast.Expr) bool {
				pair, is := element.(*ast.KeyValueExpr)
				return is && slices.Contains([]string{"Timeout", "Transport"}, selected(pair.Key))
			})
			if selected(node.Type) == "http.Client" && !bounded {
				report(node)
			}
		}
		return true
	})
}

func unboundedReads(file *ast.File, report func(ast.Node)) {
	called(file, func(call *ast.CallExpr, name string) {
		if name != "io.ReadAll" && name != "ioutil.ReadAll" || len(call.Args) == 0 {
			return
		}
		inner, is := call.Args[0].(*ast.CallExpr)
		if !is || !slices.Contains([]string{"io.LimitReader", "http.MaxBytesReader"}, selected(inner.Fun)) {
			report(call)
		}
	})
}

// wideModes finds the calls that create or change a file for others than its owner: the mode is their last argument.
func wideModes(file *ast.File, report func(ast.Node)) {
	most := map[string]int64{"WriteFile": 0o600, "OpenFile": 0o600, "Chmod": 0o700, "Mkdir": 0o700, "MkdirAll": 0o700}
	called(file, func(call *ast.CallExpr, name string) {
		if name == "os.Create" {
			report(call)
		}
		limit, listed := most[last(name)]
		if !listed || !strings.Contains(name, ".") || len(call.Args) < 2 {
			return
		}
		literal, is := call.Args[len(call.Args)-1].(*ast.BasicLit)
		if !is {
			report(call)
			return
		}
		if mode, err := strconv.ParseInt(literal.Value, 0, 64); err != nil || mode > limit {
			report(call)
		}
	})
}

var (
	// namesOfSecrets are constants of ours that hold the name of a Secret.
	namesOfSecrets = []string{"clusterkey.Secret", "key.Secret"}
	secretName     = regexp.MustCompile(`(?i)^(token|secret|password|passphrase|privatekey|kubeconfig|bearer|bearertoken|authtoken|credentials)$`)
	printing       = regexp.MustCompile(`^((fmt|log)\.\w+|errors\.New|\w+\.(Info|Error|Eventf|Event|WithValues|Warningf|Infof|Errorf))$`)
)

// printedSecrets finds values whose name shows that they are secret in calls that print: as they are, converted, or joined with text.
func printedSecrets(file *ast.File, report func(ast.Node)) {
	var isSecret func(value ast.Expr) bool
	isSecret = func(value ast.Expr) bool {
		switch value := value.(type) {
		case *ast.Ident, *ast.SelectorExpr:
			name := selected(value)
			return secretName.MatchString(last(name)) && !slices.Contains(namesOfSecrets, name) || regexp.MustCompile(`(?i)^secret\.(string)?data$`).MatchString(name)
		case *ast.CallExpr: // a conversion; what other functions return is their matter
			return len(value.Args) == 1 && selected(value.Fun) == "string" && isSecret(value.Args[0])
		case *ast.BinaryExpr:
			return value.Op == token.ADD && (isSecret(value.X) || isSecret(value.Y))
		case *ast.UnaryExpr:
			return isSecret(value.X)
		case *ast.StarExpr:
			return isSecret(value.X)
		}
		return false
	}
	called(file, func(call *ast.CallExpr, name string) {
		if printing.MatchString(name) && slices.ContainsFunc(call.Args, isSecret) {
			report(call)
		}
	})
}

// TestPodsAreHardened: the places of the product that make containers have a test in their package that holds the pods to the rules of
// internal/kube/kubetest/hardening.
func TestPodsAreHardened(t *testing.T) {
	copies := map[string]string{"internal/offloading/shadow/pod.go": "what a peer's pod becomes; the policies on peers' pods judge it"}
	checked := map[string]bool{}
	for _, file := range productSources(t) {
		if file.test && slices.Contains(file.imports(), module+"/internal/kube/kubetest/hardening") {
			checked[path.Dir(file.path)] = true
		}
	}
	makers := 0
	for _, file := range productSources(t) {
		if file.test || isTestOnly(path.Dir(file.path)) || file.generated || !strings.HasPrefix(file.path, "internal/") && !strings.HasPrefix(file.path, "cmd/") {
			continue
		}
		if makesContainers(file.syntax) {
			makers++
			if !checked[path.Dir(file.path)] && copies[file.path] == "" {
				t.Errorf("%s makes a container with an image: call hardening.Check in a test of its package", file.path)
			}
		}
	}
	if makers < 3 {
		t.Errorf("%d files make containers; adapt makesContainers to how they do it", makers)
	}
	for source, want := range map[string]bool{
		"var x = corev1.Container{Image: i}": true, "var x = []corev1.Container{{Name: n, Image: i}}": true,
		"var x = apply.Container().WithName(n).WithImage(i)": true,
		"var x = corev1.Container{Name: n}":                  false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "example.go", "package x\n"+source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if makesContainers(file) != want {
			t.Errorf("%s: want %t", source, want)
		}
	}
	if !checked["deployments/liqo"] {
		t.Error("no test of the chart calls hardening.Check")
	}
}

func makesContainers(file *ast.File) (found bool) {
	called(file, func(_ *ast.CallExpr, name string) { found = found || last(name) == "WithImage" })
	ast.Inspect(file, func(node ast.Node) bool {
		call, is := node.(*ast.SelectorExpr)
		found = found || is && call.Sel.Name == "WithImage"
		literal, is := node.(*ast.CompositeLit)
		if !is {
			return true
		}
		elements := []*ast.CompositeLit{literal}
		kind := literal.Type
		if list, is := kind.(*ast.ArrayType); is {
			kind = list.Elt
			for _, element := range literal.Elts {
				if inner, is := element.(*ast.CompositeLit); is {
					elements = append(elements, inner)
				}
			}
		}
		if last(selected(kind)) != "Container" {
			return true
		}
		for _, element := range elements {
			found = found || slices.ContainsFunc(element.Elts, func(one ast.Expr) bool {
				pair, is := one.(*ast.KeyValueExpr)
				return is && selected(pair.Key) == "Image"
			})
		}
		return true
	})
	return found
}

// contact finds addresses of mail.
var contact = regexp.MustCompile(`[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}`)

// TestAttackNL4: no document names a place at a domain that does not belong to this repository, to which users would send what no one else may read.
func TestAttackNL4(t *testing.T) {
	for _, file := range files(t) {
		if ext := path.Ext(file); ext != ".md" && ext != ".tpl" && path.Base(file) != "Chart.yaml" {
			continue
		}
		for i, line := range strings.Split(string(read(t, file)), "\n") {
			for _, address := range contact.FindAllString(line, -1) {
				if !regexp.MustCompile(`(?i)[@.]example\.(com|org|net)$`).MatchString(address) {
					t.Errorf("%s:%d: %s: no domain belongs to this repository; name a channel of the repository itself", file, i+1, address)
				}
			}
			if path.Base(file) == "Chart.yaml" && strings.Contains(line, "//liqo.io") {
				t.Errorf("%s:%d: %s: the module path is a name, not a place", file, i+1, line)
			}
		}
	}
	if text := string(read(t, "SECURITY.md")); !strings.Contains(text, "private vulnerability report of this repository") {
		t.Error("SECURITY.md does not name the private report of the repository as the place for vulnerabilities")
	}
}
