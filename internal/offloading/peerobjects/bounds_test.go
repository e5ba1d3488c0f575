// SPDX-License-Identifier: Apache-2.0

package peerobjects

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/internal/offloading/ledger"
)

// totals are what a ResourceQuota of each remote namespace bounded in earlier versions, with its kind, an object that uses it, and how much that uses.
var totals = map[string]struct {
	kind schema.GroupVersionResource
	spec string
	uses int
}{
	"secrets":                           {secretKind, `{}`, 1},
	"configmaps":                        {configMaps, `{}`, 1},
	"services":                          {ledger.Services.WithVersion("v1"), `{}`, 1},
	"services.loadbalancers":            {ledger.Services.WithVersion("v1"), `{"type":"LoadBalancer"}`, 1},
	"services.nodeports":                {ledger.Services.WithVersion("v1"), `{"type":"NodePort","ports":[{},{},{},{},{}]}`, 5},
	"count/ingresses.networking.k8s.io": {schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, `{}`, 1},
	"count/poddisruptionbudgets.policy": {schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}, `{}`, 1},
	"persistentvolumeclaims":            {ledger.Claims.WithVersion("v1"), `{}`, 1},
	"requests.storage":                  {ledger.Claims.WithVersion("v1"), `{"resources":{"requests":{"storage":"5"}}}`, 5},
}

// ofPeer is a new object of a peer in one of its namespaces.
func ofPeer(kind schema.GroupVersionResource, spec string, i int) admission.Request {
	request := written(admissionv1.Create, kind, []string{"web-rome", "shop-rome"}[i%2], fmt.Sprint("x-", i), 0)
	request.Object.Raw = []byte(fmt.Sprintf(`{"metadata":{"name":"x-%d"},"spec":%s}`, i, spec))
	return request
}

// TestAttackNH4 plays a peer that writes into all its namespaces at the same time: of each resource that the former quota bounded, exactly as many
// are admitted as the bound for all namespaces has.
func TestAttackNH4(t *testing.T) {
	for name, c := range totals {
		t.Run(name, func(t *testing.T) {
			limits := ledger.Limits{}
			if err := limits.Add(corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("50")}); err != nil {
				t.Fatal(err)
			}
			p := peersOf(t, limits, stored{})
			var admitted atomic.Int32
			var asking sync.WaitGroup
			for i := range 200 {
				asking.Go(func() {
					if p.Review(ofPeer(c.kind, c.spec, i)).Allowed {
						admitted.Add(1)
					}
				})
			}
			if asking.Wait(); int(admitted.Load())*c.uses != 50 {
				t.Errorf("%d objects that use %d each are admitted at the same time, and at most 50 may be used", admitted.Load(), c.uses)
			}
		})
	}
}

// TestAttackNH4Restart plays a peer that has all that it may have, and writes as fast as it can when the controller manager has started again: it
// gets a part of its bounds more, and waits until what it has is counted. Another peer waits for nothing.
func TestAttackNH4Restart(t *testing.T) {
	for name, c := range totals {
		t.Run(name, func(t *testing.T) {
			limits := ledger.Limits{}
			if err := limits.Add(corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("50")}); err != nil {
				t.Fatal(err)
			}
			p := peersOf(t, limits, stored{})
			p.early = ledger.New(limits.Early(countedByCaches))
			admitted, last := 0, ""
			for ; admitted < 100; admitted++ {
				if answer := p.Review(ofPeer(c.kind, c.spec, admitted)); !answer.Allowed {
					last = answer.Result.Message
					break
				}
			}
			if admitted*c.uses > 5 || !strings.Contains(last, "is being counted") {
				t.Errorf("before the first list, %d objects that use %d each are admitted; then: %q", admitted, c.uses, last)
			}
			p.listDue(t)
			if answer := p.Review(ofPeer(c.kind, c.spec, 200)); !answer.Allowed {
				t.Errorf("after the first list: %+v", answer.Result)
			}
			other := ofPeer(c.kind, c.spec, 0)
			other.Namespace, other.UserInfo.Username = "web-milan", "system:serviceaccount:"+tenantOf("milan")+":liqo-peer"
			if answer := p.Review(other); !answer.Allowed {
				t.Errorf("another peer: %+v", answer.Result)
			}
		})
	}
}
