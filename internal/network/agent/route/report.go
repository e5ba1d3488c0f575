// SPDX-License-Identifier: Apache-2.0

package route

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netapply "liqo.io/liqo/apis/applyconfiguration/net/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/scheme"
	"liqo.io/liqo/internal/network/reach"
)

// The report of this node, and of no other: the policy liqo-node-reports compares the name with the node of the token.
// +kubebuilder:rbac:namespace=liqo,groups=net.liqo.io,resources=nodereports,verbs=create;get;patch

const (
	// reportPause is how long a change of the node's networks may wait. A long table costs more to read, so the pause is at least reportFactor times that.
	reportPause, reportFactor = 10 * time.Second, 50
	// lookFactor is after how many pauses the agent looks whether an unchanged report is still there: a user may have deleted it, or the controller
	// manager while the node was away.
	lookFactor = 60
	// reportTimeout bounds one attempt to write.
	reportTimeout = 10 * time.Second
)

// reporter writes which networks the node reaches without Liqo. It is apart from the loop, which must not wait for the API server.
type reporter struct {
	route  *Route
	client client.Client
	owner  *metaapply.OwnerReferenceApplyConfiguration
	pause  time.Duration
	// written is the last report; nil before the first. It was there at the time seen.
	written []reach.Network
	seen    time.Time
	logged  string
	// took is how long the last look at the kernel took.
	took time.Duration
}

// report reports until ctx ends: once at the start, and then only changes.
func (r *Route) report(ctx context.Context) error {
	kinds, err := scheme.Of(netv1alpha1.AddToScheme)
	if err != nil {
		return err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(netv1alpha1.GroupVersion.WithKind("NodeReport"), meta.RESTScopeNamespace)
	c, err := client.New(r.cfg, client.Options{Scheme: kinds, Mapper: mapper})
	if err != nil {
		return fmt.Errorf("create the client for reports: %w", err)
	}
	one := &reporter{route: r, client: c, pause: cmp.Or(r.o.ReportPause, reportPause)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		one.log(ctx, one.once(ctx))
		timer.Reset(max(one.pause, reportFactor*one.took))
	}
}

// log logs an error once, and its end.
func (r *reporter) log(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case ctx.Err() != nil || text == r.logged:
		return
	case err != nil:
		r.route.o.Log.Error(err, "networks of the node not reported")
	default:
		r.route.o.Log.Info("networks of the node reported again")
	}
	r.logged = text
}

// once reads the node, and writes the report if it is not the last one.
func (r *reporter) once(ctx context.Context) error {
	began := time.Now()
	facts, err := r.route.host.Reaches()
	if err != nil {
		return fmt.Errorf("read the networks of the node: %w", err)
	}
	var unread error // the rest is reported nevertheless
	if r.route.o.Resolvers != nil {
		text, err := r.route.o.Resolvers()
		if err != nil {
			unread = fmt.Errorf("read the resolvers of the node: %w", err)
		}
		facts.Resolvers = reach.Resolvers(text)
	}
	networks := reach.Networks(facts, netv1alpha1.MaxNodeNetworks)
	r.took = time.Since(began)
	same := r.written != nil && slices.Equal(r.written, networks)
	if same && began.Sub(r.seen) < lookFactor*r.pause {
		return unread
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if same {
		there := &netv1alpha1.NodeReport{}
		switch err := r.client.Get(ctx, client.ObjectKey{Namespace: r.route.o.Namespace, Name: r.route.o.Node}, there); {
		case err == nil && there.DeletionTimestamp == nil:
			r.seen = began
			return unread
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("read NodeReport %s/%s: %w", r.route.o.Namespace, r.route.o.Node, err)
		}
	}
	if err := r.findOwner(ctx); err != nil {
		return err
	}
	report := netapply.NodeReport(r.route.o.Node, r.route.o.Namespace).
		WithLabels(map[string]string{labels.AppPartOf: labels.PartOf}).
		WithSpec(reportSpec(networks))
	if r.owner != nil {
		report.WithOwnerReferences(r.owner)
	}
	if err := r.client.Apply(ctx, report, client.FieldOwner(labels.OwnerRoute), client.ForceOwnership); err != nil {
		return fmt.Errorf("write NodeReport %s/%s: %w", r.route.o.Namespace, r.route.o.Node, err)
	}
	r.written, r.seen = append([]reach.Network{}, networks...), began
	r.route.o.Log.Info("networks of the node reported", "count", len(networks))
	return unread
}

// findOwner looks the DaemonSet up once: reports go with it at an uninstallation.
func (r *reporter) findOwner(ctx context.Context) error {
	if r.owner != nil {
		return nil
	}
	cfg := rest.CopyConfig(r.route.cfg)
	cfg.QPS = -1
	apps, err := appsv1.NewForConfig(cfg)
	if err != nil {
		return err
	}
	set, err := apps.DaemonSets(r.route.o.Namespace).Get(ctx, r.route.o.DaemonSet, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil // it runs by hand
	case err != nil:
		return fmt.Errorf("get the DaemonSet %s in namespace %s: %w", r.route.o.DaemonSet, r.route.o.Namespace, err)
	}
	r.owner = metaapply.OwnerReference().WithAPIVersion("apps/v1").WithKind("DaemonSet").WithName(set.Name).WithUID(set.UID)
	return nil
}

func reportSpec(networks []reach.Network) *netapply.NodeReportSpecApplyConfiguration {
	spec := netapply.NodeReportSpec()
	for _, one := range networks {
		network := netapply.NodeNetwork().WithCIDR(netv1alpha1.CIDR(one.Prefix.String())).WithKind(netv1alpha1.NodeNetworkKind(one.Kind))
		if one.Link != "" {
			network.WithLink(one.Link)
		}
		spec.WithNetworks(network)
	}
	return spec
}
