// SPDX-License-Identifier: Apache-2.0

// Package cleanup ends all peerings of a cluster before Liqo is removed from it, while the controllers that do so still
// run. It is a separate job with its own rights, and Helm waits for it.
//
// It also waits for the removal of the tunnels, and then a moment for the agents, which clean the nodes.
//
// It must not know how a peering is ended: it sets the spec, waits for the controllers, and names what they have not
// removed. It forces nothing: the controllers have deadlines for dead peers. The proofs are plan_test.go, for the
// decisions, and cleanup_test.go, against a real API server and with the rights of the job.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	klabels "k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsv1config "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryconfig "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/kube/ending"
	"liqo.io/liqo/internal/kube/scheme"
)

// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings,verbs=list
// +kubebuilder:rbac:groups=storage.liqo.io,resources=volumemoves,verbs=list
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups=apps,resources=deployments,resourceNames=liqo-auth,verbs=get;patch

const (
	// owner is the field owner. It is not liqoctl's, because an apply with that owner would drop the fields it has set.
	owner = "liqo-cleanup"
	auth  = "liqo-auth"

	// retryAfter is the pause after a write that failed, for example because the webhook did not answer.
	retryAfter = 2 * time.Second
	// agentTime is many times what an agent needs to observe the removal of the last tunnel and to clean its node.
	agentTime = time.Second
	// reportTimeout is for the work after the deadline: to list what is left, and to scale the authentication service up.
	reportTimeout = 10 * time.Second
)

// ErrOffloaded is wrapped by the error that names offloaded namespaces. Nothing was changed.
var ErrOffloaded = errors.New("namespaces are offloaded")

// ErrMoving is wrapped by the error that names claims whose volumes move. Nothing was changed.
var ErrMoving = errors.New("volumes move")

// ErrStanding is wrapped by the error that names what is left at the deadline.
var ErrStanding = errors.New("not everything is gone")

// Options configure a run.
type Options struct {
	Namespace string // in which Liqo is installed
	Timeout   time.Duration
	Out       io.Writer // one line per change

	sleep func(context.Context, time.Duration) // tests replace it
}

// Run returns nil when no ForeignCluster, no tenant namespace and no tunnel is left, else an error that names what is
// left and why. While namespaces are offloaded it ends no peering, because their pods would end with it.
// Nor does it while volumes move: only the controller manager brings back a volume that a move has taken away.
func Run(ctx context.Context, config *rest.Config, o Options) (err error) {
	kinds, err := scheme.All()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: kinds})
	if err != nil {
		return err
	}
	if o.sleep == nil {
		o.sleep = sleep
	}
	r := &run{Options: o, client: c, stopped: map[types.UID]bool{}, removed: map[types.UID]bool{}}
	if err := errors.Join(r.refuse(ctx), r.refuseMoves(ctx)); err != nil {
		return err
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()

	// A peer that loses its identity registers again with the token, so the authentication service must be gone first.
	replicas, err := r.scaleAuth(ctx, 0)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && replicas > 0 {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(whole), reportTimeout)
			defer cancel()
			_, restored := r.scaleAuth(ctx, replicas)
			err = errors.Join(err, restored)
		}
	}()
	changed, err := r.watch(ctx, config, kinds)
	if err != nil || changed == nil {
		return err
	}
	return r.loop(ctx, changed)
}

// refuse returns an error if a namespace is offloaded, and is to stay so.
func (r *run) refuse(ctx context.Context) error {
	var all offloadingv1alpha1.NamespaceOffloadingList
	if err := r.client.List(ctx, &all); meta.IsNoMatchError(err) {
		return nil // the resource definitions are gone already
	} else if err != nil {
		return fmt.Errorf("list offloaded namespaces: %w", err)
	}
	var namespaces corev1.NamespaceList
	if len(all.Items) > 0 {
		if err := r.client.List(ctx, &namespaces); err != nil {
			return fmt.Errorf("list namespaces: %w", err)
		}
	}
	commands := unoffload(all.Items, namespaces.Items)
	if len(commands) == 0 {
		return nil
	}
	return fmt.Errorf("%w, nothing was changed; their pods in other clusters would end. First:\n  %s", ErrOffloaded, strings.Join(commands, "\n  "))
}

// refuseMoves returns an error if a volume moves.
func (r *run) refuseMoves(ctx context.Context) error {
	var all storagev1alpha1.VolumeMoveList
	if err := r.client.List(ctx, &all); meta.IsNoMatchError(err) {
		return nil // the resource definitions are gone already
	} else if err != nil {
		return fmt.Errorf("list moves of volumes: %w", err)
	}
	var commands []string
	for _, one := range all.Items {
		if !one.Ended() {
			commands = append(commands, fmt.Sprintf("liqoctl move volume %s -n %s --cancel", one.Name, one.Namespace))
		}
	}
	if len(commands) == 0 {
		return nil
	}
	slices.Sort(commands)
	return fmt.Errorf(
		"%w, nothing was changed; a claim whose volume was taken away would stay Lost. Wait until these moves end, or take them back first:\n  %s",
		ErrMoving, strings.Join(commands, "\n  "),
	)
}

// run is one run of the job.
type run struct {
	Options
	client client.Client
	reader client.Reader // the cache
	// reported is the last text about what the run waits for.
	reported string
	// tunneled: there was a tunnel, so agents have to clean the nodes.
	tunneled bool
	// stopped and removed are the ForeignClusters that were changed and deleted: the cache may still show the state before.
	stopped, removed map[types.UID]bool
}

// watch syncs the cache and returns a channel that has an element after each change, or nil if the kinds do not exist.
func (r *run) watch(ctx context.Context, config *rest.Config, scheme *kruntime.Scheme) (<-chan struct{}, error) {
	watched, err := cache.New(config, cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&discoveryv1alpha1.ForeignCluster{}: {},
		&netv1alpha1.TunnelEndpoint{}:       {},
		&corev1.Namespace{}:                 {Label: klabels.SelectorFromSet(tenants)},
	}})
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a notification is pending already
		}
	}
	go func() { _ = watched.Start(ctx) }() // if it fails, WaitForCacheSync fails
	for _, object := range []client.Object{&discoveryv1alpha1.ForeignCluster{}, &netv1alpha1.TunnelEndpoint{}, &corev1.Namespace{}} {
		informer, err := watched.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if meta.IsNoMatchError(err) {
			fmt.Fprintln(r.Out, "the resource definitions are gone already, so there are no peerings to end")
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(_, _ any) { notify() }, DeleteFunc: func(any) { notify() },
		}); err != nil {
			return nil, err
		}
	}
	if !watched.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("%w after %s: foreign clusters, tunnels and namespaces could not be watched; check that the API server runs", ErrStanding, r.Timeout)
	}
	r.reader = watched
	return changed, nil
}

func (r *run) loop(ctx context.Context, changed <-chan struct{}) error {
	for {
		now, err := r.observe(ctx, r.reader)
		if err != nil {
			return err
		}
		if now.done() {
			// The cache may lack a peer that was just created, so the API server has to confirm.
			if now, err = r.observe(ctx, r.client); err != nil {
				return err
			}
			if now.done() {
				r.awaitAgents(ctx)
				return nil
			}
		}
		r.report(now.waiting)
		var retry <-chan time.Time
		if err := r.act(ctx, now); err != nil && ctx.Err() == nil {
			fmt.Fprintf(r.Out, "trying again: %v\n", err)
			retry = time.After(retryAfter)
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
			return r.standing(ctx)
		}
	}
}

// tenants are the labels of the namespaces of peers.
var tenants = map[string]string{labels.TenantNamespace: "true"}

func (r *run) observe(ctx context.Context, from client.Reader) (step, error) {
	var peers discoveryv1alpha1.ForeignClusterList
	var tunnels netv1alpha1.TunnelEndpointList
	var namespaces corev1.NamespaceList
	if err := errors.Join(from.List(ctx, &peers), from.List(ctx, &tunnels), from.List(ctx, &namespaces, client.MatchingLabels(tenants))); err != nil {
		return step{}, fmt.Errorf("list what is left: %w", err)
	}
	r.tunneled = r.tunneled || len(tunnels.Items) > 0
	return next(peers.Items, namespaces.Items, tunnels.Items), nil
}

// awaitAgents gives the agents time to clean the nodes, if there was a tunnel. An agent that is slower cleans its node
// when it terminates.
func (r *run) awaitAgents(ctx context.Context) {
	if r.tunneled {
		r.sleep(ctx, agentTime)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (r *run) act(ctx context.Context, now step) (err error) {
	for _, peer := range now.stop {
		if !r.stopped[peer.UID] {
			r.stopped[peer.UID] = true
			fmt.Fprintf(r.Out, "ending the peerings with %s\n", peer.Name)
		}
		// The UID keeps the apply from creating an object that was just deleted.
		intent := discoveryconfig.ForeignCluster(peer.Name).WithUID(peer.UID).WithSpec(discoveryconfig.ForeignClusterSpec().
			WithOutgoingPeeringEnabled(discoveryv1alpha1.PeeringNo).WithIncomingPeeringEnabled(discoveryv1alpha1.PeeringNo))
		if e := r.client.Apply(ctx, intent, client.FieldOwner(owner), client.ForceOwnership); e != nil && !apierrors.IsConflict(e) {
			err = errors.Join(err, fmt.Errorf("end the peerings with %s: %w", peer.Name, e))
		}
	}
	for _, peer := range now.remove {
		if r.removed[peer.UID] {
			continue
		}
		fmt.Fprintf(r.Out, "deleting ForeignCluster %s\n", peer.Name)
		e := r.client.Delete(ctx, &peer, client.Preconditions{UID: &peer.UID})
		if client.IgnoreNotFound(e) != nil && !apierrors.IsConflict(e) {
			err = errors.Join(err, fmt.Errorf("delete ForeignCluster %s: %w", peer.Name, e))
			continue
		}
		r.removed[peer.UID] = true
	}
	return err
}

// report prints what the run waits for, when that changes.
func (r *run) report(waiting []string) {
	if text := strings.Join(waiting, "\n"); text != r.reported && text != "" {
		r.reported = text
		fmt.Fprintln(r.Out, text)
	}
}

// standing is the error at the deadline.
func (r *run) standing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	now, err := r.observe(ctx, r.client)
	if err != nil {
		return fmt.Errorf("%w after %s: %w", ErrStanding, r.Timeout, err)
	}
	for _, peer := range append(now.stop, now.remove...) {
		now.waiting = append(now.waiting, describe(peer, "could not be changed, see above"))
	}
	var offloaded offloadingv1alpha1.NamespaceOffloadingList
	if err := r.client.List(ctx, &offloaded); err == nil {
		for _, one := range offloaded.Items {
			state := "is still offloaded"
			if ending.Is(&one) {
				state = "is still being unoffloaded" + ending.Since(&one)
			}
			now.waiting = append(now.waiting, fmt.Sprintf("namespace %s %s; see: kubectl describe namespaceoffloading -n %[1]s offloading", one.Namespace, state))
		}
	}
	return fmt.Errorf("%w after %s:\n  %s\nif a peer is gone for good: liqoctl unpeer NAME --force", ErrStanding, r.Timeout, strings.Join(now.waiting, "\n  "))
}

// scaleAuth scales the authentication service and returns the replicas to restore; 0 if there is no such service.
func (r *run) scaleAuth(ctx context.Context, replicas int32) (before int32, err error) {
	var live appsv1.Deployment
	err = r.client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: auth}, &live)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	before = 1 // also if it is 0: a run that was interrupted left that
	if live.Spec.Replicas != nil {
		before = max(before, *live.Spec.Replicas)
	}
	intent := appsv1config.Deployment(auth, r.Namespace).WithUID(live.UID).WithSpec(appsv1config.DeploymentSpec().WithReplicas(replicas))
	if err := r.client.Apply(ctx, intent, client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return 0, fmt.Errorf("scale %s to %d: %w", auth, replicas, err)
	}
	return before, nil
}
