// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/reasons"
)

// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// Path of the webhook.
	Path = "/validate/peer-hosts"
	// reasonShared is the reason of the event on an Ingress that came later than one of a peer.
	reasonShared = reasons.HostOfPeer
)

// Peers knows for which peer a namespace was created; the answer for another namespace is empty.
type Peers interface {
	Peer(ctx context.Context, namespace string) (string, error)
}

// Guard compares the hosts of peers with those of everyone else.
type Guard struct {
	cached  client.Reader
	peers   Peers
	decoder admission.Decoder
	events  events.EventRecorder

	mu sync.Mutex
	// reported are the Ingresses that have an event already, with the host that it names.
	reported map[types.NamespacedName]string
}

// Setup registers the webhook, and the controller that reports conflicts which come later.
func Setup(ctx context.Context, mgr manager.Manager, peers Peers) error {
	g := &Guard{
		cached: mgr.GetClient(), peers: peers, decoder: admission.NewDecoder(mgr.GetScheme()),
		events: mgr.GetEventRecorder("liqo-hosts"), reported: map[types.NamespacedName]string{},
	}
	// Replicas that do not lead serve the webhook as well.
	if _, err := mgr.GetCache().GetInformer(ctx, &networkingv1.Ingress{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watch ingresses: %w", err)
	}
	err := builder.ControllerManagedBy(mgr).Named("hosts").
		For(&networkingv1.Ingress{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).Complete(g)
	if err != nil {
		return fmt.Errorf("set up controller of hosts: %w", err)
	}
	mgr.GetWebhookServer().Register(Path, &admission.Webhook{Handler: g})
	return nil
}

// Handle judges an Ingress that a peer creates or updates. The API server calls it only for these.
func (g *Guard) Handle(ctx context.Context, request admission.Request) admission.Response {
	var ingress networkingv1.Ingress
	if err := g.decoder.Decode(request, &ingress); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode Ingress: %w", err))
	}
	ingress.Namespace = request.Namespace
	host, _, err := g.conflict(ctx, &ingress)
	if err != nil {
		return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("compare hosts with those of other Ingresses: %w; try again", err))
	}
	if host != nil {
		// The peer does not learn whose it is.
		return admission.Denied(fmt.Sprintf(
			"an Ingress of a peer must not have the host %s: another Ingress of this cluster has it, or one that it covers", Name(*host),
		))
	}
	return admission.Allowed("")
}

// conflict returns a host of an Ingress that another owner has, and the Ingress of that one. Of an Ingress of this cluster, others are peers only.
func (g *Guard) conflict(ctx context.Context, ingress *networkingv1.Ingress) (*string, *networkingv1.Ingress, error) {
	asked := Of(ingress)
	own, err := g.peers.Peer(ctx, ingress.Namespace)
	if err != nil {
		return nil, nil, err
	}
	var all networkingv1.IngressList
	if err := g.cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list ingresses: %w", err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.Namespace == ingress.Namespace {
			continue
		}
		host, _, taken := Taken(asked, Of(other))
		if own == "" { // the peer's Ingress takes from this one
			_, host, taken = Taken(Of(other), asked)
		}
		if !taken {
			continue
		}
		switch peer, err := g.peers.Peer(ctx, other.Namespace); {
		case err != nil:
			return nil, nil, err
		case peer != own:
			return &host, other, nil
		}
	}
	return nil, nil, nil
}

// Reconcile reports an Ingress of this cluster with a host that a peer has had before. Only its owner, or the administrator, can decide which of them stays.
func (g *Guard) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var ingress networkingv1.Ingress
	switch err := g.cached.Get(ctx, request.NamespacedName, &ingress); {
	case apierrors.IsNotFound(err):
		g.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	peer, err := g.peers.Peer(ctx, ingress.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch host, other, err := g.conflict(ctx, &ingress); {
	case err != nil:
		return reconcile.Result{}, err
	case host == nil:
		g.forget(request.NamespacedName)
	case peer == "":
		g.report(&ingress, other, *host)
	default: // both were written at the same time
		g.report(other, &ingress, *host)
	}
	return reconcile.Result{}, nil
}

// report writes an event on an Ingress once for each host.
func (g *Guard) report(ingress, ofPeer *networkingv1.Ingress, host string) {
	key := client.ObjectKeyFromObject(ingress)
	g.mu.Lock()
	defer g.mu.Unlock()
	if before, ok := g.reported[key]; ok && before == host {
		return
	}
	g.reported[key] = host
	g.events.Eventf(ingress, ofPeer, corev1.EventTypeWarning, reasonShared, "Compare",
		"the host %s is also that of Ingress %s/%s of a peer, which may get requests for it: delete that Ingress, and take the host from the "+
			"value peers.ingresses.hosts", Name(host), ofPeer.Namespace, ofPeer.Name)
}

func (g *Guard) forget(key types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.reported, key)
}
