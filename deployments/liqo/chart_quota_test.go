// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/offloading/ledger"
)

// bounded returns the pairs of a flag of the controller manager, in a version of Kubernetes; nil if the flag is not there.
func bounded(t *testing.T, kubernetes, flag string, set ...string) map[string]string {
	t.Helper()
	files, err := charttest.RenderFilesFor(t, kubernetes, nil, charttest.Values(t, set...))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range files {
		if found := regexp.MustCompile(flag + `=([^"\s]*)`).FindStringSubmatch(text); found != nil {
			pairs := map[string]string{}
			for pair := range strings.SplitSeq(found[1], ",") {
				name, amount, _ := strings.Cut(pair, "=")
				pairs[name] = amount
			}
			return pairs
		}
	}
	return nil
}

// TestAttackNH4Quota: whatever the ResourceQuota of a remote namespace bounds where the webhooks cannot count, they bound where they can: its objects
// are counted over all namespaces of a peer, and refused if the webhook does not answer.
func TestAttackNH4Quota(t *testing.T) {
	const old, now = "v1.27.0", "v1.34.0"
	quota, totals := bounded(t, old, "--peer-quota"), bounded(t, now, "--peer-totals")
	if len(quota) < 8 {
		t.Fatalf("before Kubernetes 1.28, the quota is %v", quota)
	}
	objects := charttest.Render(t)
	for name := range quota {
		bound := strings.TrimPrefix(name, "count/")
		if totals[bound] == "" {
			t.Errorf("%s is bounded by a quota, and not by peers.totals: %v", name, totals)
		}
		limits := ledger.Limits{}
		if err := limits.Add(corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("1")}); err != nil {
			t.Errorf("the ledger does not count %s: %v", name, err)
		}
		kind, _, _ := strings.Cut(bound, ".")
		if bound == "requests.storage" {
			kind = "persistentvolumeclaims"
		}
		if !asksAbout(t, objects, kind) {
			t.Errorf("the API server does not ask the ledger about new %s, or admits them without its answer", kind)
		}
	}
	for what, c := range map[string]struct {
		kubernetes, set string
		want            int
	}{
		"the default":             {now, "", 0},
		"none before 1.28":        {old, "controllerManager.config.peerQuota=null", 0},
		"of an administrator":     {now, "controllerManager.config.peerQuota.secrets=7", 1},
		"of another one and 1.27": {old, "controllerManager.config.peerQuota.secrets=7", 1},
	} {
		set := slices.DeleteFunc([]string{c.set}, func(one string) bool { return one == "" })
		if got := bounded(t, c.kubernetes, "--peer-quota", set...); len(got) != c.want || c.want > 0 && got["secrets"] != "7" {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestPeerQuotaWithout: values of an earlier version that drop one of its bounds are accepted, and the bound is dropped.
func TestPeerQuotaWithout(t *testing.T) {
	const (
		old, now = "v1.27.0", "v1.34.0"
		dropped  = `controllerManager.config.peerQuota.services\.loadbalancers=null`
	)
	all := bounded(t, old, "--peer-quota")
	for what, c := range map[string]struct {
		kubernetes string
		set        []string
		want       int
	}{
		"none from 1.28 on":         {now, []string{dropped}, 0},
		"the others before":         {old, []string{dropped}, len(all) - 1},
		"with another one":          {now, []string{dropped, "controllerManager.config.peerQuota.secrets=7"}, 1},
		"with another one and 1.27": {old, []string{dropped, "controllerManager.config.peerQuota.secrets=7"}, 1},
	} {
		got := bounded(t, c.kubernetes, "--peer-quota", c.set...)
		if _, there := got["services.loadbalancers"]; there || len(got) != c.want {
			t.Errorf("%s: %v, want %d without load balancers", what, got, c.want)
		}
	}
}

// asksAbout reports whether a webhook that must answer is asked about new objects of a kind in remote namespaces.
func asksAbout(t *testing.T, objects []*unstructured.Unstructured, kind string) bool {
	t.Helper()
	hooks, _, err := unstructured.NestedSlice(charttest.Find(t, objects, "ValidatingWebhookConfiguration", "liqo").Object, "webhooks")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range hooks {
		hook := one.(map[string]any)
		path, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
		spaces, _, _ := unstructured.NestedSlice(hook, "namespaceSelector", "matchExpressions")
		if hook["failurePolicy"] != "Fail" || !strings.HasSuffix(path, "/validate/peer-objects") ||
			len(spaces) != 1 || spaces[0].(map[string]any)["key"] != "liqo.io/remote-cluster-id" {
			continue
		}
		for _, rule := range hook["rules"].([]any) {
			kinds, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
			operations, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "operations")
			if slices.Contains(kinds, kind) && slices.Contains(operations, "CREATE") {
				return true
			}
		}
	}
	return false
}
