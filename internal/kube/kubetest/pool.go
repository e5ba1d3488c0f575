// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// pool lends API servers to the tests of one process, each to one test at a time. A server that comes back is reset to what it held when it
// had started, and that is compared; what does not come back clean is stopped. It never holds more servers than tests have run at the same time.
type pool struct {
	mu   sync.Mutex
	idle []*cluster
}

var lending pool

// borrow returns n servers that no other test uses: those that lie idle, and new ones, which have no inventory yet.
func (p *pool) borrow(dir string, n int) ([]*cluster, error) {
	p.mu.Lock()
	from := max(0, len(p.idle)-n)
	lent := append([]*cluster(nil), p.idle[from:]...)
	p.idle = p.idle[:from]
	p.mu.Unlock()

	usable := lent[:0]
	var failures []error
	for _, c := range lent { // whatever an earlier test has left running may have written meanwhile
		if clean, err := c.reset(); clean && err == nil {
			usable = append(usable, c)
		} else {
			failures = append(failures, c.stop())
		}
	}
	started, err := startAll(n-len(usable), func() (*cluster, error) { return startOne(dir, nil) })
	usable = append(usable, started...)
	if err := errors.Join(append(failures, err)...); err != nil {
		return nil, errors.Join(err, stopAll(usable))
	}
	return usable, nil
}

// giveBack makes a server ready for the next test, or stops it.
func (p *pool) giveBack(c *cluster) error {
	if clean, err := c.reset(); !clean || err != nil {
		return c.stop()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
	return nil
}

// remember makes what the server holds now what it is reset to.
func (c *cluster) remember(ctx context.Context) (err error) {
	if c.first, err = c.etcd().inventory(ctx); err != nil {
		return fmt.Errorf("what a new API server holds: %w", err)
	}
	return nil
}

const (
	resetTimeout = 20 * time.Second
	// resetRounds is more than a difference takes that the API server itself makes once more, as an APIService of a definition that it still knew.
	resetRounds = 4
)

// reset takes away what a test has left. It returns false if the server must not be lent again: because the API server remembers more of it than
// its caches show, or because something comes back.
func (c *cluster) reset() (clean bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), resetTimeout)
	defer cancel()
	store := c.etcd()
	changed := map[string]bool{} // kinds, as the store names them
	for range resetRounds {
		now, err := store.inventory(ctx)
		if err != nil {
			return false, err
		}
		delete, put := difference(c.first, now)
		if len(delete)+len(put) == 0 {
			return true, c.settle(ctx, changed)
		}
		for _, key := range delete {
			changed[kindOf(key)] = true
		}
		for _, entry := range put {
			changed[kindOf(entry.key)] = true
		}
		for kind := range changed {
			if remembered[kind] {
				return false, nil
			}
		}
		if err := store.write(ctx, delete, put); err != nil {
			return false, err
		}
	}
	return false, nil
}

// remembered are the kinds that the API server reads by a loop or keeps for a while, so that what is deleted still acts: policies each second, quotas
// and ranges of a namespace for 30 s. The others act by watches.
var remembered = map[string]bool{
	"validatingadmissionpolicies": true, "validatingadmissionpolicybindings": true, "mutatingadmissionpolicies": true, "mutatingadmissionpolicybindings": true,
	"validatingwebhookconfigurations": true, "mutatingwebhookconfigurations": true,
	"resourcequotas": true, "limitranges": true, "servicecidrs": true,
	"flowschemas": true, "prioritylevelconfigurations": true, "apiextensions.k8s.io/customresourcedefinitions": true,
}

// difference returns what a reset deletes from the store and puts back.
func difference(first, now map[string]entry) (deleted []string, put []entry) {
	for key := range now {
		if _, ok := first[key]; !ok && !stays(key) {
			deleted = append(deleted, key)
		}
	}
	for key, then := range first {
		if found, ok := now[key]; (!ok || found.revision != then.revision && found.value != then.value) && !renewed(key) {
			put = append(put, then)
		}
	}
	return deleted, put
}

// renewed are the leases that the API server renews itself.
func renewed(key string) bool {
	for _, prefix := range []string{"/registry/leases/kube-system/apiserver-", "/registry/masterleases/", "/registry/peerserverleases/"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// stays are the definitions of our own kinds: nearly every test applies them, and each costs the API server more than all objects of a test.
func stays(key string) bool {
	if renewed(key) {
		return true
	}
	if rest, ok := strings.CutPrefix(key, "/registry/apiextensions.k8s.io/customresourcedefinitions/"); ok {
		return strings.HasSuffix(rest, ".liqo.io")
	}
	if rest, ok := strings.CutPrefix(key, "/registry/apiregistration.k8s.io/apiservices/"); ok {
		return strings.HasSuffix(rest, ".liqo.io")
	}
	return false
}

// kindOf returns the part of a key that names a kind: its plural, behind the group if that is an extension.
func kindOf(key string) string {
	parts := strings.Split(strings.TrimPrefix(key, "/registry/"), "/")
	if len(parts) > 1 && strings.Contains(parts[0], ".") || len(parts) > 1 && parts[0] == "services" {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// settle waits until the caches of the API server have what the store has: as long as a list from the cache of a changed kind differs from one
// that is consistent.
func (c *cluster) settle(ctx context.Context, changed map[string]bool) error {
	if len(changed) == 0 {
		return nil
	}
	finder, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return err
	}
	lists, err := finder.ServerPreferredResources()
	if err != nil {
		return err
	}
	reader, err := metadata.NewForConfig(c.config)
	if err != nil {
		return err
	}
	var waiting errgroup.Group
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, resource := range list.APIResources {
			if isChanged(changed, group.Group, resource.Name) && slices.Contains(resource.Verbs, "list") {
				waiting.Go(func() error { return settled(ctx, reader.Resource(group.WithResource(resource.Name))) })
			}
		}
	}
	return waiting.Wait()
}

// storedAs are the kinds whose name in the store is not their plural.
var storedAs = map[string]string{
	"nodes": "minions", "replicationcontrollers": "controllers", "services": "services/specs", "endpoints": "services/endpoints",
	"ingresses": "ingress",
}

func isChanged(changed map[string]bool, group, resource string) bool {
	return changed[group+"/"+resource] || changed[resource] || changed[storedAs[resource]]
}

func settled(ctx context.Context, reader metadata.ResourceInterface) error {
	consistent, err := versions(ctx, reader, "")
	for err == nil {
		var cached map[types.UID]string
		if cached, err = versions(ctx, reader, "0"); err == nil && maps.Equal(cached, consistent) {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

func versions(ctx context.Context, reader metadata.ResourceInterface, version string) (map[types.UID]string, error) {
	list, err := reader.List(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	all := map[types.UID]string{}
	for _, item := range list.Items {
		all[item.UID] = item.ResourceVersion
	}
	return all, nil
}
