// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"liqo.io/liqo/internal/offloading/kinds"
)

// paths adds the paths of all values of a JSON object that are no objects or lists themselves.
func paths(value any, at string, all map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			paths(field, strings.TrimPrefix(at+"."+name, "."), all)
		}
	case []any:
		for _, item := range value {
			paths(item, at+".*", all)
		}
	case nil:
	default:
		all[at] = true
	}
}

// lost returns the paths of an object that its projection does not have.
func lost(t *testing.T, local, crossing any) (all []string) {
	before, after := map[string]bool{}, map[string]bool{}
	paths(fields(t, local), "", before)
	paths(fields(t, crossing), "", after)
	for path := range before {
		if !after[path] && !strings.HasPrefix(path, "metadata.") { // TestMetadata
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return all
}

// TestPaths: every field of the kinds that are reflected, at every depth, is in the projection of an object that has it, or has a reason not to be. A field
// that a new release of Kubernetes adds is lost without a reason, and fails the test.
func TestPaths(t *testing.T) {
	reasons := kinds.Uncopied()
	for path, reason := range kinds.Unreported() {
		reasons[path] = reason
	}
	unused := maps.Clone(reasons)
	check := func(kind string, local, crossing any) {
		for _, path := range lost(t, local, crossing) {
			row := ""
			for name, reason := range reasons {
				if full := kind + "." + path; (full == name || strings.HasPrefix(full, name+".")) && reason != "" {
					row = name
				}
			}
			delete(unused, row)
			if row == "" {
				t.Errorf("%s.%s is lost on the way, and has no reason: copy it, or add the reason to uncopied or unreported, and to the documentation", kind, path)
			}
		}
	}
	for _, kind := range []kindFields{serviceFields(), ingressFields(), endpointSliceFields(t)} {
		check(kind.name, kind.local, kind.crossing)
	}
	status := podStatusFields(t)
	for _, path := range lost(t, status.local, status.crossing) {
		kind, name := "PodStatus", path
		for _, list := range []string{"initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"} {
			if within, ok := strings.CutPrefix(path, list+"."); ok {
				kind, name = "ContainerStatus", strings.ReplaceAll(within, "*.", "")
			}
		}
		row := ""
		for at := range reasons {
			if full := kind + "." + name; full == at || strings.HasPrefix(full, at+".") {
				row = at
			}
		}
		delete(unused, row)
		if row == "" {
			t.Errorf("%s.%s is lost on the way back, and has no reason", kind, name)
		}
	}
	for _, row := range slices.Sorted(maps.Keys(unused)) {
		if !strings.HasPrefix(row, "ServiceStatus.") && !strings.HasPrefix(row, "IngressStatus.") { // TestUnreported
			t.Errorf("%s has a reason to be lost, and is not lost or does not exist", row)
		}
	}
	// The projections have no status, so nothing can come from it.
	for kind, crossing := range map[string]any{
		"Service": kinds.CopyService(mapping, &corev1.Service{}),
		"Ingress": kinds.Ingress.Copy(mapping, &networkingv1.Ingress{}),
	} {
		if _, has := fields(t, crossing)["status"]; has {
			t.Errorf("the status of a %s is sent to the peer", kind)
		}
	}
}

// TestDocumentedFields: docs/offloading.md names each field of a Service, an Ingress or an EndpointSlice that the peer does not get.
func TestDocumentedFields(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/offloading.md")
	if err != nil {
		t.Fatal(err)
	}
	for path := range kinds.Uncopied() {
		if name := path[strings.LastIndex(path, ".")+1:]; !strings.Contains(string(page), fmt.Sprintf("`%s`", name)) {
			t.Errorf("docs/offloading.md does not name `%s` (%s)", name, path)
		}
	}
}

// TestLost: what a user asked for and the copy cannot have is reported; what Kubernetes has set is not.
func TestLost(t *testing.T) {
	service := func(change func(*corev1.Service)) *corev1.Service {
		one := &corev1.Service{Spec: corev1.ServiceSpec{
			ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, HealthCheckNodePort: 30000,
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30001}},
		}}
		change(one)
		return one
	}
	for _, row := range []struct {
		name   string
		change func(*corev1.Service)
		want   []string
	}{
		{"what Kubernetes sets", func(*corev1.Service) {}, nil},
		{"external addresses", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.7"} }, []string{"externalIPs"}},
		{"an address of the load balancer", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "203.0.113.7" }, []string{"loadBalancerIP"}},
		{"by annotation", func(s *corev1.Service) {
			s.Annotations = map[string]string{"metallb.io/loadBalancerIPs": "203.0.113.7", "note": "x"}
		}, []string{"annotation metallb.io/loadBalancerIPs"}},
		{"several", func(s *corev1.Service) {
			s.Spec.ExternalIPs, s.Annotations = []string{"203.0.113.7"}, map[string]string{"io.cilium/global-service": "true"}
		}, []string{"externalIPs", "annotation io.cilium/global-service"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := kinds.Service.Lost(service(row.change))
			if (err == nil) != (row.want == nil) {
				t.Fatalf("%v, want %v", err, row.want)
			}
			for _, part := range row.want {
				if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "203.0.113.7") {
					t.Errorf("%v", err)
				}
			}
		})
	}
	if err := kinds.Service.Lost(&corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
}

// TestFamilies: a Service that requires two families has one that a cluster of one family accepts, and the other policies are as they are.
func TestFamilies(t *testing.T) {
	for from, want := range map[corev1.IPFamilyPolicy]corev1.IPFamilyPolicy{
		corev1.IPFamilyPolicySingleStack: corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack: corev1.IPFamilyPolicyPreferDualStack,
		corev1.IPFamilyPolicyRequireDualStack: corev1.IPFamilyPolicyPreferDualStack,
	} {
		if got := kinds.CopyService(mapping, &corev1.Service{Spec: corev1.ServiceSpec{IPFamilyPolicy: &from}}).Spec.IPFamilyPolicy; got == nil || *got != want {
			t.Errorf("%s became %v", from, got)
		}
	}
	if got := kinds.CopyService(mapping, &corev1.Service{}).Spec.IPFamilyPolicy; got != nil {
		t.Errorf("none became %v", *got)
	}
}

// TestAffinityTime: the time for which a client stays with a pod crosses if the user has chosen one, and copies
// from before it did are not written for the default.
func TestAffinityTime(t *testing.T) {
	of := func(seconds *int32) any {
		local := &corev1.Service{Spec: corev1.ServiceSpec{SessionAffinity: corev1.ServiceAffinityClientIP}}
		if seconds != nil {
			local.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: seconds}}
		}
		return fields(t, kinds.CopyService(mapping, local))["spec"].(map[string]any)["sessionAffinityConfig"]
	}
	if got := of(new(int32(10800))); got != nil {
		t.Errorf("the default is sent: %v", got)
	}
	if got := of(nil); got != nil {
		t.Errorf("none is sent: %v", got)
	}
	if got := fmt.Sprint(of(new(int32(600)))); got != "map[clientIP:map[timeoutSeconds:600]]" {
		t.Errorf("ten minutes became %v", got)
	}
}
