// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"liqo.io/liqo/internal/kube/policies"
	"liqo.io/liqo/internal/kube/scheme"
)

// TestCachesWithoutPolicies: on a Kubernetes that has no admission policies, the controller manager starts if it does not require them. The cache resolves
// each of its kinds when it is made.
func TestCachesWithoutPolicies(t *testing.T) {
	scheme, err := scheme.All()
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	o := &Options{namespace: "liqo"}
	for kind := range o.Caches().ByObject {
		known, err := apiutil.GVKForObject(kind, scheme)
		if err != nil {
			t.Fatal(err)
		}
		mapper.Add(known, meta.RESTScopeNamespace)
	}
	for kind := range policies.Caches() {
		known, err := apiutil.GVKForObject(kind, scheme)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mapper.RESTMapping(known.GroupKind(), known.Version); err == nil {
			t.Errorf("without policies, the cache has %s", known)
		}
	}
	for required, starts := range map[bool]bool{false: true, true: false} {
		o.policies = required
		options := o.Caches()
		options.Scheme, options.Mapper = scheme, mapper
		if _, err := cache.New(&rest.Config{Host: "127.0.0.1:1"}, options); (err == nil) != starts {
			t.Errorf("policies required: %t: %v", required, err)
		}
	}
}
