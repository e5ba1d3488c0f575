// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadow"
)

// raw is a ShadowPod of whatever a peer likes to write.
func raw(name string, pod map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"pod": pod, "fence": name}}}
	object.SetGroupVersionKind(vkv1alpha1.GroupVersion.WithKind("ShadowPod"))
	object.SetNamespace(twin)
	object.SetName(name)
	object.SetLabels(map[string]string{labels.Origin: "rome-id"})
	return object
}

// TestHostileQuantities: a quantity is a program that the peer writes and we run. The API server has to refuse those that take minutes,
// before anybody reads them: our webhook, or the caches of our controllers.
func TestHostileQuantities(t *testing.T) {
	b := newBed(t)
	b.serve(ShadowPodOptions{RemoteNamespaces: twins{twin: "rome-id"}, Level: shadow.Baseline})
	b.until("the API server asks the webhook", func() bool {
		_ = b.Create(t.Context(), raw("probe", map[string]any{}), client.DryRunAll) // it is refused
		return b.asked.Load() > 0
	})
	type object = map[string]any
	container := func(more object) object {
		all := object{"name": "main", "image": "nginx"}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	pod := func(more object) object {
		all := object{"containers": []any{container(nil)}}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	volume := func(source object) object {
		source["name"] = "data"
		return pod(object{"volumes": []any{source}})
	}
	// Takes hours to read, and 800 MB.
	const endless = "1e-2000000000"
	limits := object{"resources": object{"limits": object{"cpu": endless}}}
	divisor := object{"resourceFieldRef": object{"resource": "limits.cpu", "divisor": endless}}
	for what, spec := range map[string]object{
		"limits":            pod(object{"containers": []any{container(limits)}}),
		"requests":          pod(object{"containers": []any{container(object{"resources": object{"requests": object{"example.com/thing": endless}}})}}),
		"an init container": pod(object{"initContainers": []any{container(limits)}}),
		"ephemeral":         pod(object{"ephemeralContainers": []any{container(limits)}}),
		"a variable":        pod(object{"containers": []any{container(object{"env": []any{object{"name": "A", "valueFrom": divisor}}})}}),
		"the whole pod":     pod(limits),
		"overhead":          pod(object{"overhead": object{"cpu": endless}}),
		"a size":            volume(object{"emptyDir": object{"sizeLimit": endless}}),
		"a claim":           volume(object{"ephemeral": object{"volumeClaimTemplate": object{"spec": limits}}}),
		"a file":            volume(object{"downwardAPI": object{"items": []any{divisor}}}),
		"a projected file":  volume(object{"projected": object{"sources": []any{object{"downwardAPI": object{"items": []any{divisor}}}}}}),
		"many digits":       pod(object{"overhead": object{"cpu": "1.123456789123456789"}}),
	} {
		asked, begin := b.asked.Load(), time.Now()
		if err := b.Create(t.Context(), raw("x", spec), client.DryRunAll); !apierrors.IsInvalid(err) || b.asked.Load() != asked {
			t.Fatalf("%s: %v after %v, asked %d times; want a refusal of the API server itself", what, err, time.Since(begin), b.asked.Load()-asked)
		}
	}
	// And what is no quantity is none of its business.
	for what, spec := range map[string]object{
		"amounts": pod(object{"containers": []any{container(object{"resources": object{"limits": object{"cpu": "1.5", "memory": "1Gi", "example.com/thing": int64(3)}}})}}),
		"a size":  volume(object{"emptyDir": object{"sizeLimit": "1e9"}}),
		"nothing": volume(object{"emptyDir": object{"sizeLimit": nil}, "projected": nil}),
		"text":    pod(object{"containers": []any{container(object{"command": []any{endless}, "env": []any{object{"name": "A", "value": endless}}})}}),
	} {
		if err := b.Create(t.Context(), raw("y", spec), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
