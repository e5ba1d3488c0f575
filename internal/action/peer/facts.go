// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/action/preflight"
	"liqo.io/liqo/internal/kube/version"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/peering/auth"
	authclient "liqo.io/liqo/internal/peering/auth/client"
	"liqo.io/liqo/internal/peering/auth/ways"
)

// endpointTimeout bounds each request to the provider's authentication service.
const endpointTimeout = 5 * time.Second

const (
	// settleTime is how long an address may refuse connections: a new Service has its address before all nodes serve it.
	settleTime     = 4 * time.Second
	settleInterval = 200 * time.Millisecond
)

type facts struct {
	options Options

	local    discoveryv1alpha1.ClusterIdentity
	localErr error
	// known are the ForeignClusters of this cluster; same is the one with the cluster ID of the provider.
	known []*discoveryv1alpha1.ForeignCluster
	same  *discoveryv1alpha1.ForeignCluster
	// otherKey is the fingerprint of the provider's key that is pinned here, if it is not that of the token and the provider is registered as a consumer.
	otherKey string
	// tenantOwner is the cluster that owns the tenant namespace of this name, if it exists.
	tenantOwner string

	ids    authclient.IDs
	idsErr error
	now    time.Time // when ids arrived
	asked  bool      // whether the token was tried
	token  error     // the provider's answer to the token
	ways   []tried   // how the provider's gateway can be reached
}

// runPreflight collects the facts, judges them, and reports the warnings. It changes nothing in either cluster.
func runPreflight(ctx context.Context, c client.Client, o Options, p action.Progress) (*facts, error) {
	p.Start("Checking both clusters")
	f := &facts{options: o}
	if err := f.readLocal(ctx, c); err != nil {
		p.Stop()
		return nil, err
	}
	f.askProvider(ctx)
	failures, warnings := judge(f)
	for _, warning := range warnings {
		p.Warn(warning.String())
	}
	if len(failures) > 0 {
		p.Stop()
		return nil, &preflight.Error{Findings: failures}
	}
	p.Done(fmt.Sprintf("All %d checks passed", len(checks)))
	if len(f.ways) > 0 { // providers without a network of ours, or of earlier versions, state none
		for _, line := range wayLines(f.ways) {
			p.Info(line)
		}
	}
	return f, nil
}

// readLocal reads the facts of this cluster. Only an API server that does not answer is an error.
func (f *facts) readLocal(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, await.CallTimeout)
	defer cancel()
	var (
		list   discoveryv1alpha1.ForeignClusterList
		listed error
		all    sync.WaitGroup
	)
	all.Go(func() { f.local, f.localErr = installed.Identity(ctx, c, f.options.Namespace) })
	all.Go(func() { listed = c.List(ctx, &list) })
	all.Wait()
	switch {
	case f.localErr != nil && !errors.Is(f.localErr, installed.ErrNotInstalled):
		return f.localErr
	case installed.NotServed(listed):
		f.localErr = installed.ErrNotServed
		return nil
	case listed != nil:
		return fmt.Errorf("list ForeignClusters: %w", listed)
	}
	for i := range list.Items {
		fc := &list.Items[i]
		f.known = append(f.known, fc)
		if id := foreign.IdentityOf(fc); id == f.options.ClusterID || id == "" && fc.Name == f.options.Name {
			f.same = fc
		}
	}
	if err := f.readKey(ctx, c); err != nil {
		return err
	}
	var namespace corev1.Namespace
	err := c.Get(ctx, client.ObjectKey{Name: f.tenantNamespace()}, &namespace)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsInvalid(err) {
		return fmt.Errorf("read namespace %s: %w", f.tenantNamespace(), err)
	}
	f.tenantOwner = namespace.Labels[labels.ClusterID]
	return nil
}

func (f *facts) readKey(ctx context.Context, c client.Client) error {
	fingerprint := auth.ParseToken(f.options.Token).Fingerprint
	if f.same == nil || f.same.Spec.ClusterKey == "" || fingerprint == "" || fingerprint == f.same.Spec.ClusterKey {
		return nil
	}
	at := client.ObjectKey{Namespace: f.options.Namespace, Name: auth.PinName(f.options.ClusterID)}
	switch err := c.Get(ctx, at, &corev1.ConfigMap{}); {
	case err == nil:
		f.otherKey = f.same.Spec.ClusterKey
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read ConfigMap %s: %w", at, err)
	}
	return nil
}

// tenantNamespace is the namespace that will hold the objects of the peer in this cluster.
func (f *facts) tenantNamespace() string {
	return discoveryv1alpha1.ClusterIdentity{ClusterID: f.options.ClusterID, ClusterName: f.options.Name}.TenantNamespace()
}

// askProvider asks for the identity behind the URL. If it is the expected cluster, it also asks whether the token is valid.
func (f *facts) askProvider(ctx context.Context) {
	if checkURL(f) != nil {
		f.idsErr = errNotAsked
		return
	}
	endpoint, err := authclient.New(f.options.AuthURL, authclient.Options{InsecureSkipTLSVerify: true, Timeout: endpointTimeout})
	if err != nil {
		f.idsErr = err
		return
	}
	defer endpoint.Close()
	f.ids, f.idsErr = retryIDs(ctx, endpoint.IDs, settleTime)
	f.now = time.Now()
	if f.localErr != nil || checkReachable(f) != nil || checkIdentity(f) != nil || checkVersion(f) != nil || checkClusterID(f) != nil {
		return
	}
	// A dry run pins no keys, so any keys will do.
	_, key, err := ed25519.GenerateKey(nil)
	var grant auth.Grant
	if err == nil {
		token := auth.ParseToken(f.options.Token)
		grant, err = endpoint.Register(ctx, authclient.Registration{
			Provider: authclient.Provider{ID: f.options.ClusterID, Fingerprint: token.Fingerprint, Unproven: f.options.InsecureSkipProviderVerify},
			Cluster:  f.local, Secret: token.Secret, Key: key, ClusterKey: key, DryRun: true,
		})
	}
	f.asked, f.token = true, err
	f.ways = tryWays(ctx, ways.Parse(grant.Ways), carrier.Probe)
}

// retryIDs asks again while connections are refused, for a limited time. It does not repeat a request that timed
// out, because each repetition would cost the whole timeout.
func retryIDs(ctx context.Context, ask func(context.Context) (authclient.IDs, error), most time.Duration) (authclient.IDs, error) {
	for start := time.Now(); ; {
		ids, err := ask(ctx)
		if !errors.Is(err, auth.ErrUnreachable) || time.Since(start) > most {
			return ids, err
		}
		select {
		case <-ctx.Done():
			return ids, err
		case <-time.After(settleInterval):
		}
	}
}

// errNotAsked means that another check reports why the provider was not asked.
var errNotAsked = errors.New("not asked")

func checkReachable(f *facts) *preflight.Finding {
	if f.idsErr == nil || errors.Is(f.idsErr, errNotAsked) {
		return nil
	}
	finding := preflight.Found(fmt.Sprintf("%s does not answer: %v", f.options.AuthURL, f.idsErr),
		"check the URL, the Service liqo-auth of the other cluster, and the firewalls on the way; "+
			"if the cluster can reach it but this machine cannot, add --skip-preflight")
	if f.options.SkipPreflight && errors.Is(f.idsErr, auth.ErrUnreachable) {
		finding.Level = preflight.LevelWarning
	}
	return finding
}

func checkIdentity(f *facts) *preflight.Finding {
	if f.idsErr != nil || f.ids.ClusterID == f.options.ClusterID {
		return nil
	}
	return preflight.Found(fmt.Sprintf("%s answers as cluster %s (%s) instead of %s", f.options.AuthURL, f.ids.ClusterID, f.ids.ClusterName, f.options.ClusterID),
		"run `liqoctl generate peer-command` in the other cluster again, and the printed command here")
}

func checkClocks(f *facts) *preflight.Finding {
	if f.idsErr != nil || f.ids.Date.IsZero() {
		return nil
	}
	apart := f.now.Sub(f.ids.Date).Round(time.Second)
	if apart.Abs() <= clockTolerance {
		return nil
	}
	direction := "behind"
	if apart < 0 {
		direction = "ahead of"
	}
	finding := preflight.Found(fmt.Sprintf("the provider's clock is %s %s this machine's", apart.Abs(), direction),
		"peering works in spite of it, but certificates and logs suffer: synchronize the clocks with NTP")
	finding.Level = preflight.LevelWarning
	return finding
}

func checkToken(f *facts) *preflight.Finding {
	if !f.asked || f.token == nil {
		return nil
	}
	remedy := "run `liqoctl generate peer-command` in the other cluster again, and the printed command here"
	switch {
	case errors.Is(f.token, auth.ErrUnproven) && f.options.Token == "":
		return preflight.Found("the token is empty", remedy)
	case errors.Is(f.token, auth.ErrUnproven) && auth.ParseToken(f.options.Token).Fingerprint == "":
		return preflight.Found("the token does not have the fingerprint of the provider's key, so any machine on the way could answer in the provider's place",
			remedy+"; with --insecure-skip-provider-verify, the key of the cluster that answers first is trusted")
	case errors.Is(f.token, auth.ErrUnproven):
		return preflight.Found("the provider is not proven: "+f.token.Error(), remedy)
	case errors.Is(f.token, auth.ErrEmptyDenied):
		return preflight.Found("the provider requires a token, and this one is empty", remedy)
	case errors.Is(f.token, auth.ErrDenied):
		return preflight.Found("the provider does not accept the token", remedy)
	case errors.Is(f.token, auth.ErrConflict):
		return preflight.Found(fmt.Sprintf("the provider knows the cluster %s with another key: %v", f.local.ClusterID, f.token),
			"if this cluster was reinstalled, run `liqoctl unpeer out-of-band "+f.local.ClusterName+"` in the other one, so that it forgets the old key")
	case errors.Is(f.token, auth.ErrTooMany):
		return preflight.Found("the provider limits the rate of token checks", "try again in a minute")
	}
	finding := preflight.Found(fmt.Sprintf("the token could not be checked: %v", f.token), "see the logs of Deployment liqo-auth in the other cluster")
	if f.options.SkipPreflight && errors.Is(f.token, auth.ErrUnreachable) {
		finding.Level = preflight.LevelWarning
	}
	return finding
}

func checkVersion(f *facts) *preflight.Finding {
	if f.idsErr != nil {
		return nil
	}
	if _, err := version.Compatible(f.ids.Protocol, f.ids.Version); err != nil {
		return preflight.Found(err.Error(), "`liqoctl upgrade` does it")
	}
	return nil
}

// checkTLS only warns: the service signs its own certificate, and the peering does not depend on it. But an expired one
// points to a wrong clock or a neglected service.
func checkTLS(f *facts) *preflight.Finding {
	certificate := f.ids.TLS
	if f.idsErr != nil || certificate.NotAfter.IsZero() || !f.now.After(certificate.NotAfter) && !f.now.Before(certificate.NotBefore) {
		return nil
	}
	finding := preflight.Found(fmt.Sprintf("the certificate of %s is valid only from %s to %s", f.options.AuthURL,
		certificate.NotBefore.UTC().Format(time.DateOnly), certificate.NotAfter.UTC().Format(time.DateOnly)),
		"check the clock of this machine; in the other cluster, restart Deployment liqo-auth or renew the certificate of its Ingress")
	finding.Level = preflight.LevelWarning
	return finding
}
