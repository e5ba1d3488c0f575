// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// oneListener is the folder of the package that makes every TCP listener and every HTTP server (ADR 33).
const oneListener = "internal/kube/listener/"

// listenerRule has the form of the security rules. Sockets for datagrams hold no connections, so they are free.
var listenerRule = securityRule{
	remedy: "listener.Listen, listener.On or listener.Open of " + oneListener + ", whose bounds no client can use up for the others (ADR 33)",
	find:   ownListeners,
	bad: "net.Listen(\"tcp\", a)\ntls.Listen(\"tcp\", a, c)\nhttp.ListenAndServe(a, h)\nhttp.Serve(l, h)\ntls.NewListener(l, c)\n_ = " +
		"http.Server{}\n_ = &http.Server{Handler: h}\nserver.ListenAndServeTLS(a, b)\n" +
		"new(net.ListenConfig).Listen(x, \"tcp\", a)\n_ = net.ListenConfig{}\nnet.ListenTCP(\"tcp\", a)\nvar s " +
		"http.Server\nnew(http.Server)\nwebhook.NewServer(o)\n_ = manager.Options{HealthProbeBindAddress: a}\n_ = " +
		"metricsserver.Options{BindAddress: a}\nnetutil.LimitListener(l, 5)",
	good: "listener.Listen(x, a, p)\nnet.ListenPacket(\"udp\", a)\nnet.ListenUDP(\"udp\", a)\nserver.Serve(l)\nvar s *http.Server\n_ = " +
		"manager.Options{HealthProbeBindAddress: disabled}",
	accepted: map[string]string{
		"internal/kube/manager/webhooks.go":  "registers webhooks and counts their requests; it is not started",
		"internal/network/carrier/listen.go": "answers one request of one connection, which has a place already",
		"internal/network/probe/socket.go":   "a socket for datagrams",
		"internal/network/matrix/server.go":  "a socket for datagrams",
	},
}

// TestListeners: what accepts connections is made by one package. Tests, the playground and programs of examples are not part of the product.
func TestListeners(t *testing.T) {
	for line, statement := range strings.Split(listenerRule.bad, "\n") {
		if breaches(t, listenerRule, statement) == 0 {
			t.Errorf("example %d is not found: %s", line+1, statement)
		}
	}
	for statement := range strings.SplitSeq(listenerRule.good, "\n") {
		if breaches(t, listenerRule, statement) != 0 {
			t.Errorf("what is right is refused: %s", statement)
		}
	}
	used := map[string]bool{}
	for _, file := range productSources(t) {
		top, _, _ := strings.Cut(file.path, "/")
		if file.test || file.generated || slices.Contains(outside, top) || isTestOnly(path.Dir(file.path)) || strings.HasPrefix(file.path, oneListener) {
			continue
		}
		ownListeners(file.syntax, func(at ast.Node) {
			used[file.path] = true
			if listenerRule.accepted[file.path] == "" {
				t.Errorf("%s:%d: write %s; or accept the file in listenerRule, with a reason", file.path, file.line(at.Pos()), listenerRule.remedy)
			}
		})
	}
	for file := range maps.Keys(listenerRule.accepted) {
		if !used[file] {
			t.Errorf("listenerRule accepts %s, which does not break it: remove the line", file)
		}
	}
}

// ownListeners finds what listens, what serves HTTP, and the settings with which controller-runtime does.
func ownListeners(file *ast.File, report func(ast.Node)) {
	kinds := []string{"http.Server", "net.ListenConfig"}
	functions := []string{
		"net.Listen", "net.ListenTCP", "net.ListenUnix", "tls.Listen", "tls.NewListener", "http.Serve", "http.ServeTLS", "http.ListenAndServe",
		"http.ListenAndServeTLS",
		"webhook.NewServer", "netutil.LimitListener",
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CompositeLit:
			if slices.Contains(kinds, selected(node.Type)) {
				report(node)
			}
		case *ast.ValueSpec:
			if slices.Contains(kinds, selected(node.Type)) {
				report(node)
			}
		case *ast.CallExpr:
			name := selected(node.Fun)
			made := name == "new" && len(node.Args) == 1 && slices.Contains(kinds, selected(node.Args[0]))
			if made || slices.Contains(functions, name) || strings.HasPrefix(last(name), "ListenAndServe") {
				report(node)
			}
		}
		return true
	})
	settings(file, func(at ast.Node, field string, value ast.Expr) {
		if slices.Contains([]string{"HealthProbeBindAddress", "PprofBindAddress", "BindAddress"}, field) && selected(value) != "disabled" {
			report(at)
		}
	})
}
