// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

const (
	// droppedPause is for how long no pod is created with a field that was seen to be dropped although the API server had been asked.
	droppedPause = 30 * time.Second
	// dialTimeout and keepAlive are those of client-go.
	dialTimeout, keepAlive = 30 * time.Second, 30 * time.Second
)

// keptFields remembers which fields that isolate a pod the API server of this cluster was seen to keep. A cluster may have several API servers, which
// are of different versions while it is upgraded, or an API server may start again with other features: what was seen holds until there is a new
// connection.
type keptFields struct {
	// connections is how many there have been.
	connections atomic.Int64
	mu          sync.Mutex
	kept        map[string]int64     // on which connection, by number
	dropped     map[string]time.Time // until when not to ask
	// pending are new pods, by name, of which it is not known whether they have these fields.
	pending map[types.NamespacedName]pending
}

// pending are fields of the pod of a ShadowPod with a UID.
type pending struct {
	of     types.UID
	fields []string
}

func newKeptFields() *keptFields {
	return &keptFields{kept: map[string]int64{}, dropped: map[string]time.Time{}, pending: map[types.NamespacedName]pending{}}
}

// count makes a client count its connections.
func (k *keptFields) count(config *rest.Config) {
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		k.connections.Add(1)
		return dial(ctx, network, address)
	}
}

// judge returns which of these fields were dropped a moment ago, and of which it is not known whether the API server of the present connection keeps them.
func (k *keptFields) judge(asked []string, now time.Time) (dropped, unknown []string, connection int64) {
	connection = k.connections.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, field := range asked {
		if until, ok := k.dropped[field]; ok && until.After(now) {
			dropped = append(dropped, field)
		}
		if on, ok := k.kept[field]; !ok || on != connection {
			unknown = append(unknown, field)
		}
	}
	return dropped, unknown, connection
}

// keeps records what the API server has kept that was asked after a connection was made. If there is another one since, it counts for none.
func (k *keptFields) keeps(fields []string, connection int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, field := range fields {
		k.kept[field] = connection
	}
}

// drops records that fields were dropped although the API server had been asked.
func (k *keptFields) drops(fields []string, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, field := range fields {
		delete(k.kept, field)
		k.dropped[field] = now.Add(droppedPause)
	}
}

// unsettled records that it is not known, from now on, whether the pod of a ShadowPod has these fields.
func (k *keptFields) unsettled(shadowPod *vkv1alpha1.ShadowPod, fields []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending[client.ObjectKeyFromObject(shadowPod)] = pending{shadowPod.UID, fields}
}

// unsure returns the fields of the pod of a ShadowPod of which that is not known.
func (k *keptFields) unsure(shadowPod *vkv1alpha1.ShadowPod) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if entry := k.pending[client.ObjectKeyFromObject(shadowPod)]; entry.of == shadowPod.UID {
		return entry.fields
	}
	return nil
}

// settled ends what unsettled has begun.
func (k *keptFields) settled(name types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pending, name)
}
