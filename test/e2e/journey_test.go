// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"liqo.io/liqo/test/env"
)

// The tests in the order in which a user meets them. Each brings the clusters to the state that it needs, so any of them runs alone:
//
//	go test ./test/e2e -run 'TestPeer$' -v

// state is what a test needs of the clusters.
type state func(t *testing.T)

func uninstalled(t *testing.T) {
	t.Helper()
	env.Unpeered(t, rome, milan)
	for _, c := range both() {
		c.Uninstalled(t)
	}
}

func notPeered(t *testing.T) {
	t.Helper()
	env.NotPeered(t, rome, milan)
}

// peered has rome use milan, and not the other way.
func peered(t *testing.T) {
	t.Helper()
	if milan.Foreign(t, rome) != nil && milan.Columns(t, rome) != "None Established Established Established" {
		notPeered(t)
	}
	env.Peered(t, rome, milan)
	rome.WantColumns(t, milan, "Established None Established Established")
	milan.WantColumns(t, rome, "None Established Established Established")
}

// step runs a test in a state of the clusters. If it fails it leaves what the clusters looked like.
func step(t *testing.T, need state, run func(*testing.T)) {
	t.Helper()
	defer clusters.Step(t)()
	need(t)
	run(t)
}

func TestNothingInstalled(t *testing.T) { step(t, uninstalled, nothingInstalled) }
func TestInstall(t *testing.T)          { step(t, uninstalled, install) }
func TestPeer(t *testing.T)             { step(t, notPeered, peerAndColumns) }
func TestSharingPercentage(t *testing.T) {
	step(t, peered, func(t *testing.T) { changesShare(t) })
}
func TestConnectivity(t *testing.T)             { step(t, peered, connectivity) }
func TestHostilePeer(t *testing.T)              { step(t, peered, hostilePeer) }
func TestAttackH4(t *testing.T)                 { step(t, peered, attackH4) }
func TestAttackNH2(t *testing.T)                { step(t, peered, attackNH2) } // ten minutes with -long
func TestAttackNH2Tunnel(t *testing.T)          { step(t, peered, attackNH2Tunnel) }
func TestRotateIdentity(t *testing.T)           { step(t, peered, rotateIdentity) }
func TestBadInput(t *testing.T)                 { step(t, peered, badInput) }
func TestProviderUnreachable(t *testing.T)      { step(t, peered, providerUnreachable) }
func TestGatewayAway(t *testing.T)              { step(t, peered, gatewayAway) }
func TestGatewayDeleted(t *testing.T)           { step(t, peered, gatewayDeleted) }
func TestVirtualKubeletKilled(t *testing.T)     { step(t, peered, virtualKubeletKilled) }
func TestControllerManagersKilled(t *testing.T) { step(t, peered, controllerManagersKilled) }
func TestIdle(t *testing.T)                     { step(t, notPeered, idle) }
func TestBidirectional(t *testing.T)            { step(t, peered, bidirectional) }
func TestReverse(t *testing.T)                  { step(t, notPeered, reverse) }
func TestInBand(t *testing.T)                   { step(t, notPeered, inBand) }
func TestUninstallRefuses(t *testing.T)         { step(t, peered, uninstallRefuses) }
func TestUnpeerLeavesNothing(t *testing.T)      { step(t, peered, unpeerLeavesNothing) }
func TestTokens(t *testing.T)                   { step(t, notPeered, tokens) }
func TestSameName(t *testing.T)                 { step(t, notPeered, sameName) }
func TestAuthenticationRestarts(t *testing.T)   { step(t, notPeered, authPodDeleted) }

// Tests that take minutes.

func TestOffloading(t *testing.T)          { takesLong(t); step(t, peered, offloads) }
func TestAttackC1(t *testing.T)            { takesLong(t); step(t, notPeered, attackC1) }
func TestAttackH1(t *testing.T)            { takesLong(t); step(t, peered, attackH1) }
func TestAttackM7(t *testing.T)            { takesLong(t); step(t, notPeered, attackM7) }
func TestReinstalledConsumer(t *testing.T) { takesLong(t); step(t, notPeered, reinstalledConsumer) }
func TestDeadProvider(t *testing.T)        { takesLong(t); step(t, notPeered, deadProvider) }
func TestFaultsAtEachStep(t *testing.T)    { takesLong(t); step(t, notPeered, faultsAtEachStep) }
func TestExternalNetwork(t *testing.T)     { takesLong(t); step(t, notPeered, externalNetwork) }
func TestInBandLong(t *testing.T)          { takesLong(t); step(t, notPeered, inBandLong) }
func TestInvited(t *testing.T)             { takesLong(t); step(t, notPeered, invited) }
func TestReverseInside(t *testing.T)       { takesLong(t); step(t, notPeered, reverseInside) }
func TestCarriers(t *testing.T)            { takesLong(t); step(t, notPeered, carriers) }
func TestBehindNAT(t *testing.T)           { takesLong(t); step(t, notPeered, behindNAT) }
func TestThroughProxies(t *testing.T)      { takesLong(t); step(t, notPeered, throughProxies) }
func TestSpeed(t *testing.T)               { takesLong(t); step(t, notPeered, speed) }

// TestRights reads the audit logs of the whole run, so it means something after all other tests only.
func TestRights(t *testing.T) { takesLong(t); step(t, notPeered, rights) }

// TestPurge is the last one: it leaves the clusters as they were before the installation.
func TestPurge(t *testing.T) { step(t, notPeered, purge) }
