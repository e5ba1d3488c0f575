// SPDX-License-Identifier: Apache-2.0

package peerobjects

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/internal/offloading/ledger"
)

// startedWith is a ledger just after the start of the controller manager, and its API server, which answers lists in the namespace shop-rome with a code.
func startedWith(t *testing.T, limits ledger.Limits, api stored, code *int) *Ledger {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if *code != http.StatusOK && strings.Contains(r.URL.Path, "/namespaces/shop-rome/") {
			w.WriteHeader(*code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, *code)
			return
		}
		text, err := api.list(r.Context(), r.URL.Path, "")
		if err != nil {
			t.Error(err)
		}
		w.Write(text)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	plain, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	p := peersOf(t, limits, nil)
	p.list, p.early = lister(plain), ledger.New(limits.Early(countedByCaches))
	return p
}

// TestAttackNH4Stuck: a namespace that is being deleted for days, whose RoleBinding is gone, keeps no peer at a tenth of its bounds after a restart
// of the controller manager, and what is known of it counts on. An API server that does not answer is no reason to admit more.
func TestAttackNH4Stuck(t *testing.T) {
	secrets := secretKind.GroupResource()
	limits := ledger.Limits{Objects: map[schema.GroupResource]int64{secrets: 50}}
	for code, stuck := range map[int]bool{http.StatusForbidden: false, http.StatusNotFound: false, http.StatusInternalServerError: true} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			p := startedWith(t, limits, stored{
				"/api/v1/namespaces/web-rome/secrets":  {"a": 100, "b": 100},
				"/api/v1/namespaces/shop-rome/secrets": {"known": 100},
			}, &code)
			create := func(namespace, name string) admission.Response {
				return p.Review(written(admissionv1.Create, secretKind, namespace, name, 100))
			}
			if answer := create("shop-rome", "known"); !answer.Allowed {
				t.Fatalf("a first object: %+v", answer.Result)
			}
			p.queue.Get()
			if err := p.relist(t.Context(), "rome"); (err != nil) != stuck {
				t.Errorf("the list ends with: %v", err)
			}
			admitted := 0
			for ; admitted < 100 && create("web-rome", fmt.Sprint("x-", admitted)).Allowed; admitted++ {
			}
			want := 50 - 3 // a, b and known
			if stuck {
				want = 50/10 - 1
			}
			if admitted != want {
				t.Errorf("%d more are admitted, want %d", admitted, want)
			}
			if code = http.StatusOK; stuck {
				return
			}
			p.later()
			if err := p.relist(t.Context(), "rome"); err != nil {
				t.Fatal(err)
			}
			if number, _ := p.ledger.Has("rome", secrets); number != 3 {
				t.Errorf("%d objects once all namespaces are listed, want 3", number)
			}
		})
	}
}

// updateOf is an update of a Service of a peer that had one spec and gets another one.
func updateOf(name, before, after string) admission.Request {
	request := written(admissionv1.Update, ledger.Services.WithVersion("v1"), "web-rome", name, 0)
	request.OldObject.Raw = []byte(fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"x":"a"}},"spec":%s}`, name, before))
	request.Object.Raw = []byte(fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"x":"b"}},"spec":%s}`, name, after))
	return request
}

// TestEarlyUpdates: after a restart of the controller manager, objects that are there may be updated at once, and take no place of new ones. What
// updates add is bounded like what new objects have, in however many steps.
func TestEarlyUpdates(t *testing.T) {
	const balanced, plain = `{"type":"LoadBalancer","ports":[{},{}]}`, `{"type":"ClusterIP"}`
	limits, code := ledger.Limits{Use: ledger.Use{ledger.Bytes: 100000}}, http.StatusOK
	if err := limits.Add(corev1.ResourceList{
		"services": resource.MustParse("20"), "services.loadbalancers": resource.MustParse("20"), "services.nodeports": resource.MustParse("50"),
	}); err != nil {
		t.Fatal(err)
	}
	p := startedWith(t, limits, stored{}, &code)
	for i := range 18 {
		if answer := p.Review(updateOf(fmt.Sprint("old-", i), balanced, balanced)); !answer.Allowed {
			t.Fatalf("update %d of Services that are there: %+v", i, answer.Result)
		}
	}
	for i := range 2 {
		if answer := p.Review(ofPeer(ledger.Services.WithVersion("v1"), plain, i)); !answer.Allowed {
			t.Errorf("new Service %d: %+v", i, answer.Result)
		}
	}
	p = startedWith(t, limits, stored{}, &code)
	var last admission.Response
	admitted := 0
	for ; admitted < 20; admitted++ {
		if last = p.Review(updateOf(fmt.Sprint("old-", admitted), plain, balanced)); !last.Allowed {
			break
		}
	}
	if admitted != 2 || last.Result.Code != http.StatusTooManyRequests || !strings.Contains(last.Result.Message, "what it adds is judged in a moment") {
		t.Errorf("%d Services get a load balancer before the first list, want a tenth of 20; then: %+v", admitted, last.Result)
	}
	p, admitted = startedWith(t, limits, stored{}, &code), 0
	for ; admitted < 100; admitted++ { // what takes something away may not be stored
		larger := written(admissionv1.Update, configMaps, "web-rome", "a", 2000)
		larger.OldObject.Raw = make([]byte, 1000)
		smaller := written(admissionv1.Update, configMaps, "web-rome", "a", 1000)
		smaller.OldObject.Raw = make([]byte, 2000)
		if !p.Review(larger).Allowed {
			break
		}
		if answer := p.Review(smaller); !answer.Allowed {
			t.Errorf("an update that takes something away: %+v", answer.Result)
		}
	}
	if admitted != 10 {
		t.Errorf("%d updates add 1000 bytes each before the first list, want a tenth of 100000 bytes", admitted)
	}
}
