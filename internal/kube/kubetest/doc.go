// SPDX-License-Identifier: Apache-2.0

// Package kubetest gives a test real API servers: etcd and kube-apiserver as
// processes, without nodes and controllers. Liqo joins two clusters, so the usual
// unit is a pair: a consumer and a provider that do not know each other.
//
// The binaries come from the playground. Their directory is named by
// KUBEBUILDER_ASSETS; `make test` sets it, by hand it is
//
//	KUBEBUILDER_ASSETS=$(bin/playground assets) go test ./...
//
// Without the variable, a test that needs a cluster is skipped with a message.
// If the variable is set but the binaries do not work, the test fails.
//
// There is no controller manager. Deleted namespaces stay Terminating, objects
// without an owner are not collected, no service account is created. A test that
// needs one of these belongs into the playground's end-to-end tests.
//
// Cost, on two cores: a pair is ready in about four seconds, takes half a
// gigabyte of memory, and stops in less than a tenth of a second. To apply our
// definitions takes as long again. Therefore [Cluster] and [Pair] lend: a server
// serves one test after the other, and is reset in between, in about a tenth of a
// second. The reset writes what the server held at first into its etcd, waits for
// the caches of the API server, and compares. A server that still acts on what is
// gone, as on webhooks, policies and quotas, is not lent again. Our definitions
// stay; [Fresh] is for a test that must not find them. A test that works in
// namespaces of its own uses [SharedPair], which is started once per test binary.
//
// [Env] has what nearly every such test does to a cluster: create, read, change,
// wait. An error fails the test. [Eventually] is the only way to wait: it polls, and its
// bound only protects against hanging. If it fails, it prints what the test has read last
// through an Env or [Remembering]; the logs of controllers and API servers are printed as
// well. [Env.RBACMarkers] and [Env.Bind] give
// the code under test the rights that its RBAC markers name, and no others.
//
// The package must not know any Liqo kind: callers install what they need.
// Its own tests prove that a pair is two clusters, that a test finds nothing of
// an earlier one, and that no process or file is left, not even when the test process is killed. (Only envtest's record of
// used ports, empty files in the user's cache directory, stays for two minutes.)
package kubetest
