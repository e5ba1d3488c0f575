// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadow"
)

// raw is a ShadowPod with any content that a peer may write.
func raw(name string, pod map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"pod": pod, "fence": name}}}
	object.SetGroupVersionKind(vkv1alpha1.GroupVersion.WithKind("ShadowPod"))
	object.SetNamespace(remoteNamespace)
	object.SetName(name)
	object.SetLabels(map[string]string{labels.Origin: "rome-id"})
	return object
}

// TestHostileQuantities: parsing a quantity of the peer can take minutes. The API server must refuse such quantities before our webhook or the
// caches of our controllers parse them.
func TestHostileQuantities(t *testing.T) {
	b := newEnv(t)
	b.serve(ShadowPodOptions{RemoteNamespaces: remoteNamespaces{remoteNamespace: "rome-id"}, Level: shadow.Baseline})
	b.Until("the API server calls the webhook", func() bool {
		_ = b.Create(t.Context(), raw("probe", map[string]any{}), client.DryRunAll) // the webhook refuses it
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
	// Parsing it takes hours, and 800 MB.
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
		asked := b.asked.Load()
		if err := b.Create(t.Context(), raw("x", spec), client.DryRunAll); !apierrors.IsInvalid(err) || b.asked.Load() != asked {
			t.Fatalf("%s: %v, webhook called %d times; want a refusal by the API server itself", what, err, b.asked.Load()-asked)
		}
	}
	// The API server accepts the same text in fields that are no quantities.
	for what, spec := range map[string]object{
		"amounts": pod(object{
			"containers": []any{container(object{"resources": object{"limits": object{"cpu": "1.5", "memory": "1Gi", "example.com/thing": int64(3)}}})},
		}),
		"a size":  volume(object{"emptyDir": object{"sizeLimit": "1e9"}}),
		"nothing": volume(object{"emptyDir": object{"sizeLimit": nil}, "projected": nil}),
		"text":    pod(object{"containers": []any{container(object{"command": []any{endless}, "env": []any{object{"name": "A", "value": endless}}})}}),
	} {
		if err := b.Create(t.Context(), raw("y", spec), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
