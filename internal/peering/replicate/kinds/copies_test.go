// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

func TestCopied(t *testing.T) {
	local := &metav1.ObjectMeta{
		Name: "rome", Namespace: "here", Finalizers: []string{"f"},
		Labels:      map[string]string{labels.Replication: "true", labels.RemoteID: "milan-id", labels.ClusterID: "milan-id", "a": "b"},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", labels.ForceUnpeer: "true", "c": "d"},
	}
	want := Meta{
		name: "rome", namespace: "there",
		labels: map[string]string{
			labels.Replication: "false", labels.Replicated: "true", labels.OriginID: "rome-id",
			labels.RemoteID: "milan-id", labels.ClusterID: "rome-id", "a": "b",
		},
		annotations: map[string]string{"c": "d"},
	}
	if diff := cmp.Diff(want, Copied(local, "rome-id", "there"), cmp.AllowUnexported(Meta{})); diff != "" {
		t.Error(diff)
	}
	if local.Labels[labels.Replication] != "true" || len(local.Annotations) != 3 {
		t.Error("the local object was changed")
	}
}

func TestPeerOf(t *testing.T) {
	for name, test := range map[string]struct {
		meta metav1.ObjectMeta
		id   string
		ours bool
	}{
		"wanted": {metav1.ObjectMeta{Labels: map[string]string{labels.Replication: "true", labels.RemoteID: "x"}}, "x", true},
		"a copy": {metav1.ObjectMeta{Labels: map[string]string{labels.Replication: "false", labels.RemoteID: "x"}}, "x", false},
		"a copy, with our finalizer": {
			metav1.ObjectMeta{Labels: map[string]string{labels.Replicated: "true", labels.RemoteID: "x"}, Finalizers: []string{labels.FinalizerReplication}},
			"x", false,
		},
		"no peer named":             {metav1.ObjectMeta{Labels: map[string]string{labels.Replication: "true"}}, "", false},
		"unmanaged":                 {metav1.ObjectMeta{}, "", false},
		"lost its labels, was sent": {metav1.ObjectMeta{Finalizers: []string{labels.FinalizerReplication}}, "", true},
		"lost one label and is sent": {
			metav1.ObjectMeta{Labels: map[string]string{labels.RemoteID: "x"}, Finalizers: []string{labels.FinalizerReplication}}, "x", true,
		},
	} {
		if id, ours := PeerOf(&test.meta); id != test.id || ours != test.ours {
			t.Errorf("%s: %q %t, want %q %t", name, id, ours, test.id, test.ours)
		}
	}
}

func TestObservedGenerationIsTranslated(t *testing.T) {
	slice := func(generation, observed int64, node string) *sharingv1alpha1.ResourceSlice {
		return &sharingv1alpha1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n", Generation: generation},
			Spec:       sharingv1alpha1.ResourceSliceSpec{NodeName: node},
			Status:     sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceAccepted, ObservedGeneration: observed},
		}
	}
	for name, test := range map[string]struct {
		local, remote *sharingv1alpha1.ResourceSlice
		want          int64
	}{
		"answered":                          {slice(7, 6, "a"), slice(2, 2, "a"), 7},
		"the provider has not answered yet": {slice(7, 6, "a"), slice(3, 2, "a"), 6},
		"the copy is behind":                {slice(7, 6, "b"), slice(2, 2, "a"), 6},
	} {
		if got := *sliceStatusIntent(test.local, test.remote).Status.ObservedGeneration; got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
	silent := slice(1, 0, "a")
	silent.Status.Phase = ""
	if sliceStatusIntent(slice(1, 0, "a"), silent) != nil {
		t.Error("the empty status of a provider was copied")
	}
	for _, url := range []string{
		"https://id:pass@10.9.0.7:8118", "http://10.9.0.7:8118", "http://id:pass@evil.example:8118", "http://id:pass@10.9.0.7:80",
		"http://" + strings.Repeat("a", maxProxyURL) + "@10.9.0.7:8118",
	} {
		odd := slice(1, 1, "a")
		odd.Status.ProxyURL = url // our API server would refuse the whole status
		if got := sliceStatusIntent(slice(1, 1, "a"), odd).Status.ProxyURL; got != nil {
			t.Errorf("%.60q was copied", url)
		}
	}
}

// TestSliceCheck: a quantity that takes hours to parse is refused before it is parsed.
func TestSliceCheck(t *testing.T) {
	for amount, good := range map[any]bool{
		"1": true, "100m": true, "1.5Gi": true, "2e3": true, ".5": true, "9223372036854775807": true, int64(7): true, "-1": true,
		"1e999999999": false, "1E+999": false, "1234567890123456789e999999999": false, "": false, "1 ": false, "12345678901234567890123": false,
		1.5: false, true: false, "0x1": false, "1e1.5": false,
	} {
		for _, path := range [][]string{{"spec", "resources"}, {"status", "resources"}, {"status", "prices"}} {
			object := map[string]any{}
			if err := unstructured.SetNestedField(object, map[string]any{"cpu": amount}, path...); err != nil {
				t.Fatal(err)
			}
			err := sliceCheck(object)
			if (err == nil) != good {
				t.Errorf("%s %v: %v", strings.Join(path, "."), amount, err)
			}
			if text, ok := amount.(string); ok && good {
				if _, err := resource.ParseQuantity(text); err != nil {
					t.Errorf("%q passes and is no quantity: %v", text, err)
				}
			}
		}
	}
	many := map[string]any{}
	for i := range maxAmounts + 1 {
		many[fmt.Sprint("r", i)] = "1"
	}
	if sliceCheck(map[string]any{"status": map[string]any{"resources": many}}) == nil {
		t.Error("too many resources pass")
	}
	for _, strange := range []map[string]any{{"status": "x"}, {"status": map[string]any{"resources": []any{}}}} {
		if sliceCheck(strange) == nil {
			t.Errorf("%v passes", strange)
		}
	}
}

// TestSliceStatusIntentIsSmall: what is copied from a provider's status is bounded.
func TestSliceStatusIntentIsSmall(t *testing.T) {
	long := strings.Repeat("ä", 10_000)
	var remote sharingv1alpha1.ResourceSlice
	status := &remote.Status
	status.Phase, status.Labels = sharingv1alpha1.SliceAccepted, map[string]string{"not a label": "x", "a": long}
	status.Conditions = []metav1.Condition{{Type: sharingv1alpha1.ConditionGranted, Message: long}}
	for i := range 10_000 {
		status.Labels[fmt.Sprint("l", i)] = "v"
		status.Images = append(status.Images, corev1.ContainerImage{Names: []string{long, long, long, long, long, long}})
		status.Architectures, status.OperatingSystems = append(status.Architectures, long), append(status.OperatingSystems, long)
		status.StorageClasses = append(status.StorageClasses, sharingv1alpha1.StorageClass{StorageClassName: fmt.Sprint(long, i)})
		status.IngressClasses = append(status.IngressClasses, sharingv1alpha1.IngressClass{IngressClassName: fmt.Sprint(long, i)})
	}
	text, err := json.Marshal(sliceStatusIntent(&sharingv1alpha1.ResourceSlice{}, &remote))
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 200<<10 {
		t.Errorf("%d bytes are written", len(text))
	}
	for _, bad := range []string{"not a label", "l9999"} {
		if bytes.Contains(text, []byte(bad)) {
			t.Errorf("%s was copied", bad)
		}
	}
}

// TestAmountPatternIsTheDefinitions: a provider's quantities are accepted if our own API server would store them.
func TestAmountPatternIsTheDefinitions(t *testing.T) {
	text, err := os.ReadFile("../../../../deployments/liqo/crds/sharing.liqo.io_resourceslices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if found := strings.Count(string(text), "pattern: "+amountPattern.String()+"\n"); found != 3 {
		t.Errorf("%d amounts of the resource definition have this pattern, want 3: spec.resources, status.resources and status.prices", found)
	}
}
