// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/metadata"
)

// incomplete remembers what was reported that a pod lacks: a change of the pod reports it only if it lacks something else since.
type incomplete struct {
	mu       sync.Mutex
	reported map[types.NamespacedName]lack
}

// lack is what a pod lacks of its ShadowPod with a UID.
type lack struct {
	of   types.UID
	what string
}

func newIncomplete() *incomplete { return &incomplete{reported: map[types.NamespacedName]lack{}} }

// changed records what a pod lacks, and reports whether that is something, and new.
func (i *incomplete) changed(shadowPod *vkv1alpha1.ShadowPod, what string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	name, now := client.ObjectKeyFromObject(shadowPod), lack{shadowPod.UID, what}
	before := i.reported[name]
	if what == "" {
		delete(i.reported, name)
	} else {
		i.reported[name] = now
	}
	return what != "" && before != now
}

func (i *incomplete) forget(name types.NamespacedName) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.reported, name)
}

// leftOut reports to the peer what its pod, which was created or changed, lacks because this cluster does not accept it.
func (r *reconciler) leftOut(shadowPod *vkv1alpha1.ShadowPod) {
	what := strings.Join(metadata.LeftOut(shadowPod, r.options.Allowed), ", ")
	if r.incomplete.changed(shadowPod, what) {
		r.events.Warn(shadowPod, reasonIncomplete, "Create",
			"this cluster does not accept all that the pod asks for, so the pod runs without; the administrator of this cluster can allow it (values "+
				"peers.metadata.pods, peers.tolerations): %.700s", what)
	}
}
