// SPDX-License-Identifier: Apache-2.0

// Package kubetest gives a test real API servers: etcd and kube-apiserver as
// processes, no nodes, no controllers. Liqo joins two clusters, so the usual
// unit is a pair, a consumer and a provider that know nothing of each other.
//
// The binaries come from the playground. Their directory is named by
// KUBEBUILDER_ASSETS; `make test` sets it, by hand it is
//
//	KUBEBUILDER_ASSETS=$(bin/playground assets) go test ./...
//
// Without the variable a test that asks for a cluster is skipped and says so.
// With the variable set and something wrong behind it, the test fails.
//
// What is not there: a controller manager. Deleted namespaces stay Terminating,
// owner references are not collected, no service account is made. A test that
// needs one of these belongs into the playground's end-to-end tests.
//
// Cost, on two cores: a pair is ready in about four seconds, takes half a
// gigabyte of memory, and stops in less than a tenth of a second. A test that
// works in namespaces of its own takes [SharedPair], which is started once per
// test binary; one that changes cluster-wide things takes [Pair].
//
// What nearly every such test does to a cluster is [Env]: make, read, change,
// wait, with an error being the end of the test. [Env.RBACMarkers] and [Env.Bind] give
// the code under test the rights it asks for in its source, and no others.
//
// The package must not know any Liqo kind: callers install what they need.
// Its own tests prove that a pair is two clusters, and that nothing stays
// behind, not even when the test process is killed. (Only envtest's note of
// used ports, empty files in the user's cache directory, lives two minutes on.)
package kubetest
