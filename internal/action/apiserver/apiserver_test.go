// SPDX-License-Identifier: Apache-2.0

// Package apiserver proves the actions against an API server whose connection breaks, which they share: each test does the work
// of the controllers and cleans up after itself.
package apiserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/kubetest"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestWithAPIServer runs the tests that need an API server with our kinds. They share one; each test cleans up after itself.
func TestWithAPIServer(t *testing.T) {
	config := kubetest.Fresh(t)
	definitions := envtest.CRDInstallOptions{Paths: []string{filepath.Join("..", "..", "..", "deployments", "liqo", "crds")}, ErrorIfPathMissing: true}
	if _, err := envtest.InstallCRDs(config, definitions); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *rest.Config){
		"FollowReconnects":    testFollowReconnects,
		"FollowEnds":          testFollowEnds,
		"GeneratePeerCommand": testGeneratePeerCommand,
		"RotateIdentity":      testRotateIdentity,
		"BadInput":            testBadInput,
		"Warnings":            testWarnings,
		"Peer":                testPeer,
		"PeerReusesIncoming":  testPeerReusesIncoming,
		"PeerLeavesTunnel":    testPeerLeavesTunnel,
		"PeerFirstCome":       testPeerFirstCome,
		"FailedPeerNoToken":   testFailedPeerNoToken,
		"Unpeer":              testUnpeer,
		"UnpeerWaits":         testUnpeerWaits,
		"PeerAfterUnpeer":     testPeerAfterUnpeer,
		"AcceptLabels":        testAcceptLabels,
		"Offload":             testOffload,
		"EndingPeer":          testEndingPeer,
		"EndingOffloading":    testEndingOffloading,
		"EndingMove":          testEndingMove,
		"Narrow":              testNarrow,
		"Unoffload":           testUnoffload,
		"Volumes":             testVolumes,
		"Move":                testMove,
		"CancelMove":          testCancelMove,
	} {
		t.Run(name, func(t *testing.T) { test(t, config) })
	}
}
