// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readerQPS and readerBurst bound the requests of one Reader: replication must not wait for them.
const readerQPS, readerBurst = 20, 40

var errNotConnected = errors.New("this cluster is not connected to it; see: liqoctl status peer")

// Reader returns a reader of a peer's API server, through the tunnel if the peering is in-band. It has no cache, reads with our identity there, and
// its requests have deadlines. Without a connection, it returns an error.
func (r *Replicator) Reader(clusterID string) (client.Reader, error) {
	r.mu.Lock()
	w, ok := r.workers[clusterID]
	r.mu.Unlock()
	if !ok {
		return nil, errNotConnected
	}
	c := w.current()
	if c == nil {
		return nil, errNotConnected
	}
	config := c.api.Config()
	config.QPS, config.Burst = readerQPS, readerBurst
	return client.New(config, client.Options{HTTPClient: c.api.HTTPClient(), Scheme: r.mgr.GetScheme(), Mapper: c.api.Mapper()})
}
