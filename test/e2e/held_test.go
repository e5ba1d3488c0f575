// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
)

const (
	heldNamespace = "held"
	// holders are pods, and so addresses. All of them want more connections than the service has places.
	holders, heldEach = 4, 400
	// inTime is what a renewal may take, with all attempts of the controller.
	inTime = 5 * time.Second
)

// heldNow is what command traffic hold prints.
type heldNow struct {
	Held, Opened, Ended, Failed, Answers int
	Why                                  string
}

// attackNH2: four addresses hold all connections of the authentication service that they get, and open others in the place of those that end. An honest
// cluster renews its identity again and again, as its controller does, and each time in time.
func attackNH2(t *testing.T) {
	renewals, every := 10, 2*time.Second
	if *long {
		renewals, every = 60, 10*time.Second
	}
	t.Cleanup(func() {
		rome.TryKubectl("", "annotate", "foreigncluster", milan.Name, labels.OwnKey+"-")
	})
	usual := renewOnce(t, "before the attack", env.Hang)
	service := authPod(t)
	holdService(t)
	first := heldBy(t)
	var slowest time.Duration
	renewed := 0
	began := time.Now()
	pace := time.NewTicker(every)
	defer pace.Stop()
	for renewed < renewals && !t.Failed() {
		renewed++
		slowest = max(slowest, renewOnce(t, strconv.Itoa(renewed), inTime))
		<-pace.C
	}
	last := heldBy(t)
	took := time.Since(began).Round(time.Second)
	if opened := last.Opened - first.Opened; renewed == renewals && (opened < holders*heldEach || last.Held == 0 || last.Answers == first.Answers) {
		t.Errorf("in %v the four addresses opened %d connections, so this test proves nothing: %+v, and then %+v", took, opened, first, last)
	}
	clusters.Measure("authentication service held by four addresses",
		"renewals %d in %v, slowest %v (without them %v); connections: held %d, opened %d, ended by it %d, failed %d",
		renewed, took, slowest.Round(time.Millisecond), usual.Round(time.Millisecond), last.Held, last.Opened, last.Ended, last.Failed)

	milan.Kubectl(t, "delete", "namespace", heldNamespace, "--timeout=180s")
	rome.Kubectl(t, "annotate", "foreigncluster", milan.Name, labels.OwnKey+"-")
	env.Healthy(t, milan)
	env.Healthy(t, rome)
	rome.NodeReady(t, milan)
	rome.WantColumns(t, milan, "Established None Established Established")
	milan.WantColumns(t, rome, "None Established Established Established")
	if now := authPod(t); now.UID != service.UID || now.Restarts != service.Restarts {
		t.Errorf("the authentication service did not live through it: it is %+v, and was %+v", now, service)
	}
}

// authPod is the pod of the provider's authentication service.
func authPod(t *testing.T) (found env.Pod) {
	t.Helper()
	env.Eventually(t, env.Hang, "one authentication service is ready in milan", func() (string, bool) {
		pods, err := milan.Pods("liqo", map[string]string{labels.AppComponent: "auth"})
		if len(pods) == 1 {
			found = pods[0]
		}
		return fmt.Sprintf("%+v, %v", pods, err), err == nil && len(pods) == 1
	})
	return found
}

// holdService starts the attack from pods of the provider, and waits until each has opened as many connections as it wants to have.
func holdService(t *testing.T) {
	t.Helper()
	var service corev1.Service
	if err := milan.API.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "liqo-auth"}, &service); err != nil {
		t.Fatal(err)
	}
	at := net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(service.Spec.Ports[0].Port)))
	milan.Kubectl(t, "create", "namespace", heldNamespace)
	t.Cleanup(func() {
		milan.TryKubectl("", "delete", "namespace", heldNamespace, "--wait=false", "--ignore-not-found")
	})
	for n := range holders {
		milan.Kubectl(t, "-n", heldNamespace, "run", holder(n), "--image=localhost/traffic:dev", "--image-pull-policy=Never", "--restart=Never",
			"--", "hold", at, "--connections", strconv.Itoa(heldEach))
	}
	for n := range holders {
		env.Eventually(t, env.Hang, holder(n)+" holds what it gets", func() (string, bool) {
			now, err := heldAt(n)
			return fmt.Sprintf("%+v, %v", now, err), err == nil && now.Opened >= heldEach
		})
	}
	pods, err := milan.Pods(heldNamespace, nil)
	var addresses []string
	for _, pod := range pods {
		addresses = append(addresses, pod.Address.String())
	}
	slices.Sort(addresses)
	if err != nil || len(slices.Compact(addresses)) != holders {
		t.Fatalf("the pods have the addresses %v (%v), want %d", addresses, err, holders)
	}
}

func holder(n int) string { return fmt.Sprintf("holder-%d", n) }

// heldAt reads the last line of one pod.
func heldAt(n int) (now heldNow, err error) {
	r := milan.TryKubectl("", "-n", heldNamespace, "logs", holder(n), "--tail=1")
	if r.Code != 0 {
		return now, errors.New(r.String())
	}
	if err := json.Unmarshal([]byte(r.Out), &now); err != nil {
		return now, fmt.Errorf("%w: %q", err, r.Out)
	}
	return now, nil
}

// heldBy is what all of them hold together.
func heldBy(t *testing.T) (all heldNow) {
	t.Helper()
	for n := range holders {
		env.Eventually(t, env.Hang, holder(n)+" reports what it holds", func() (string, bool) {
			one, err := heldAt(n) // a line may be half written
			if err != nil {
				return err.Error(), false
			}
			all.Held, all.Opened, all.Ended, all.Failed, all.Answers = all.Held+one.Held, all.Opened+one.Opened, all.Ended+one.Ended, all.Failed+one.Failed,
				all.Answers+one.Answers
			if one.Why != "" {
				all.Why = one.Why
			}
			return "", true
		})
	}
	return all
}

// renewOnce lets the consumer's controller renew its identity, and returns how long it takes until it has another token. If that is longer than it may be, the
// test has failed, and shows what was seen.
func renewOnce(t *testing.T, which string, within time.Duration) time.Duration {
	t.Helper()
	before, _, _ := identity(t, rome, milan)
	fc := rome.Foreign(t, milan)
	if fc == nil || fc.Name == "" {
		t.Fatalf("rome has no ForeignCluster of milan: %+v", fc)
	}
	changed := fc.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	// A key that milan does not know to be rome's makes the controller renew at once; each other value does it again.
	changed.Annotations[labels.OwnKey] = fmt.Sprintf("renew-%d", time.Now().UnixNano())
	if err := rome.API.Patch(t.Context(), changed, client.MergeFrom(fc)); err != nil {
		t.Fatal(err)
	}
	var seen []string
	took := env.Eventually(t, env.Hang, "renewal "+which+": rome has another token", func() (string, bool) {
		now, _, _ := identity(t, rome, milan)
		is := env.PeeringCondition(rome.Foreign(t, milan), discovery.AuthenticationStatus)
		if line := fmt.Sprint(is.Status, " ", is.Message); len(seen) == 0 || seen[len(seen)-1] != line {
			seen = append(seen, line)
		}
		return strings.Join(seen, "\n            "), now != before
	})
	if took > within {
		manager := rome.TryKubectl("", "-n", "liqo", "logs", "deployment/liqo-controller-manager", "--tail=20")
		service := milan.TryKubectl("", "-n", "liqo", "logs", "deployment/liqo-auth", "--tail=20")
		t.Errorf("renewal %s took %v, want at most %v; rome showed:\n            %s\nits controllers:\n%s%s\nmilan's authentication service:\n%s%s",
			which, took, within, strings.Join(seen, "\n            "), manager.Out, manager.Err, service.Out, service.Err)
	}
	return took
}
