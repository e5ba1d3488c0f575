// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	klabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/network/endpoint"
	"liqo.io/liqo/internal/network/keyring"
	"liqo.io/liqo/internal/network/report"
)

// +kubebuilder:rbac:namespace=liqo,groups="",resources=pods;services,verbs=list;watch

const (
	// silence is the time without a line after which a gateway counts as silent. It sends one each second.
	silence = 4 * time.Second
	// maxLine bounds one line of a report. A thousand nodes and a hundred peers fit, at a hundred bytes for each combination.
	maxLine = 16 << 20
	// retryFirst and retryLast are the pauses between attempts to reach a gateway.
	retryFirst, retryLast = 50 * time.Millisecond, time.Second
	// APIServerSlice is the EndpointSlice with the addresses of the API servers.
	APIServerSlice = "kubernetes"
)

// Reader follows the reports of the gateway pods, one connection each, and records which peers changed.
type Reader struct {
	// Cache holds the gateways' pods and Services, the Secret with their keys and the endpoints of our API server.
	Cache   cache.Cache
	Updates *updates
	// port has the report of gateways of earlier versions, securePort that of the others.
	port, securePort int
	// connect returns a client that requests a report, over TLS if it is HTTPS.
	connect func(proof *tls.Config) *http.Client
	// key returns the private key of the gateway of a lane, which proves it.
	key func(ctx context.Context, lane int) ([keyring.Size]byte, error)

	mu        sync.Mutex
	followers map[string]*follower // by name of the pod
}

// follower follows one gateway pod. The lock of gateways guards its fields.
type follower struct {
	observation report.Observation
	uid         string
	// secure: the gateway has its report over TLS.
	secure bool
	stop   context.CancelFunc
	// alarm fires after silence, whatever the state of the connection.
	alarm   *time.Timer
	stopped chan struct{}
}

// Options are where the gateways run, and where they report.
type Options struct {
	// Namespace is the install namespace, where the gateways run.
	Namespace string
	// SecureReportPort is the port of the gateways' reports, ReportPort that of gateways of earlier versions. Default 5877 and 5873.
	SecureReportPort, ReportPort int
}

// New returns what follows the gateways. It is not registered yet.
func New(mgr manager.Manager, o Options) (*Reader, error) {
	here := func(selector cache.Config) cache.ByObject {
		return cache.ByObject{Namespaces: map[string]cache.Config{o.Namespace: selector}}
	}
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:     here(cache.Config{LabelSelector: klabels.SelectorFromSet(klabels.Set{labels.Gateway: labels.GatewayActive})}),
			&corev1.Service{}: here(cache.Config{LabelSelector: klabels.SelectorFromSet(klabels.Set{labels.Gateway: "true"})}),
			// The reports of the agents on nodes.
			&netv1alpha1.NodeReport{}: here(cache.Config{}),
			&corev1.Secret{}:          here(cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", keyring.SecretName)}),
			&discoveryv1.EndpointSlice{}: {Namespaces: map[string]cache.Config{
				corev1.NamespaceDefault: {FieldSelector: fields.OneTermEqualSelector("metadata.name", APIServerSlice)},
			}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("create cache of gateways: %w", err)
	}
	g := &Reader{
		Cache: own, port: cmp.Or(o.ReportPort, report.Port), securePort: cmp.Or(o.SecureReportPort, report.SecurePort), Updates: newUpdates(),
		followers: map[string]*follower{},
		connect:   reportClient,
	}
	g.key = func(ctx context.Context, lane int) ([keyring.Size]byte, error) {
		return keyOf(ctx, own, o.Namespace, lane)
	}
	return g, mgr.Add(own)
}

// keyOf reads the private key of the gateway of a lane.
func keyOf(ctx context.Context, from client.Reader, namespace string, lane int) (key [keyring.Size]byte, err error) {
	var secret corev1.Secret
	if err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: keyring.SecretName}, &secret); err != nil {
		return key, fmt.Errorf("read the key that proves the gateway of lane %d: %w", lane, err)
	}
	all, err := keyring.Keys(&secret)
	if err != nil {
		return key, err
	}
	one, ok := all[lane]
	if !ok {
		return key, fmt.Errorf("no key that proves the gateway of lane %d in Secret %s yet", lane, keyring.SecretName)
	}
	return one.Current, nil
}

// reportsSecurely reports whether a gateway has its report over TLS. The pod states it, so that what answers at its address cannot choose.
func reportsSecurely(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(one corev1.Container) bool {
		return slices.ContainsFunc(one.Ports, func(port corev1.ContainerPort) bool { return port.Name == report.SecurePortName })
	})
}

// reportClient connects to gateway pods directly: no proxy, no redirect, one request for each connection.
func reportClient(proof *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext, TLSClientConfig: proof, TLSHandshakeTimeout: silence,
			ResponseHeaderTimeout: silence, DisableCompression: true, DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// way returns the URL of the report of a gateway, and what proves the gateway; nil if it is of an earlier version.
func (g *Reader) way(ctx context.Context, f *follower) (url string, proof *tls.Config, _ error) {
	scheme, port := "http", g.port
	if f.secure {
		scheme, port = "https", g.securePort
		key, err := g.key(ctx, f.observation.Lane)
		if err != nil {
			return "", nil, err
		}
		if proof, err = report.Reader(key); err != nil {
			return "", nil, err
		}
	}
	return scheme + "://" + net.JoinHostPort(f.observation.Address, strconv.Itoa(port)) + report.Path, proof, nil
}

func (g *Reader) Setup(mgr manager.Manager) error {
	err := builder.ControllerManagedBy(mgr).Named("gateways").
		WatchesRawSource(source.Kind[client.Object](g.Cache, &corev1.Pod{}, &handler.EnqueueRequestForObject{})).
		Complete(reconcile.Func(g.reconcile))
	if err != nil {
		return fmt.Errorf("set up controller of gateways: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		g.stopAll()
		return nil
	}))
}

// reconcile follows a running pod, and stops following others.
func (g *Reader) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	err := g.Cache.Get(ctx, request.NamespacedName, &pod)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read gateway pod %s: %w", request.Name, err)
	}
	lane, ok := endpoint.LaneOf(pod.Labels)
	// A deleted pod may keep reporting for long on a node whose kubelet is dead, but its report no longer counts.
	if err != nil || !ok || pod.Status.PodIP == "" || podphase.Final(pod.Status.Phase) || pod.DeletionTimestamp != nil {
		g.unfollow(request.Name)
		return reconcile.Result{}, nil
	}
	g.follow(ctx, &pod, lane)
	return reconcile.Result{}, nil
}

func (g *Reader) follow(ctx context.Context, pod *corev1.Pod, lane int) {
	g.mu.Lock()
	has := g.followers[pod.Name]
	same := has != nil && has.uid == string(pod.UID) && has.observation.Address == pod.Status.PodIP && has.observation.Lane == lane
	g.mu.Unlock()
	if same {
		return
	}
	g.unfollow(pod.Name)
	// The context of this reconcile ends before the follower does.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &follower{
		uid: string(pod.UID), secure: reportsSecurely(pod), stop: stop, stopped: make(chan struct{}),
		observation: report.Observation{Lane: lane, Pod: pod.Name, Address: pod.Status.PodIP, Silent: true},
	}
	f.alarm = time.AfterFunc(silence, func() { g.recordSilence(f) })
	g.mu.Lock()
	g.followers[pod.Name] = f
	g.mu.Unlock()
	go g.run(following, f)
	g.Updates.add(report.EveryPeer)
}

func (g *Reader) unfollow(name string) {
	g.mu.Lock()
	f := g.followers[name]
	delete(g.followers, name)
	g.mu.Unlock()
	if f == nil {
		return
	}
	f.stop()
	<-f.stopped
	g.Updates.add(report.EveryPeer)
}

func (g *Reader) stopAll() {
	g.mu.Lock()
	var names []string
	for name := range g.followers {
		names = append(names, name)
	}
	g.mu.Unlock()
	for _, name := range names {
		g.unfollow(name)
	}
}

// Observations returns the last report of each lane's gateway. While a pod replaces another, the one that reports counts.
func (g *Reader) Observations() map[int]report.Observation {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[int]report.Observation{}
	for _, f := range g.followers {
		other, ok := all[f.observation.Lane]
		if !ok || other.Silent && !f.observation.Silent || other.Silent == f.observation.Silent && f.observation.At.After(other.At) {
			all[f.observation.Lane] = f.observation
		}
	}
	return all
}

// run keeps a connection to the gateway until ctx ends.
func (g *Reader) run(ctx context.Context, f *follower) {
	defer close(f.stopped)
	defer f.alarm.Stop()
	pause := retryFirst
	for ctx.Err() == nil {
		lines, err := g.listen(ctx, f)
		if ctx.Err() != nil {
			return
		}
		log.FromContext(ctx).V(1).Info(
			"connection to a gateway's report ended", "pod", f.observation.Pod, "address", f.observation.Address, "lines", lines, "reason",
			err.Error(),
		)
		if lines > 0 {
			pause = retryFirst
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		pause = min(2*pause, retryLast)
	}
}

// recordSilence records the change once.
func (g *Reader) recordSilence(f *follower) {
	g.mu.Lock()
	updates := !f.observation.Silent
	f.observation.Silent = true
	g.mu.Unlock()
	if updates {
		g.Updates.add(report.EveryPeer)
	}
}

// recordProof records whether what answers in the place of a gateway has its key. An attempt that did not get so far changes nothing.
func (g *Reader) recordProof(f *follower, err error) {
	var refused *tls.CertificateVerificationError
	unproven := errors.As(err, &refused)
	if err != nil && !unproven {
		return
	}
	g.mu.Lock()
	updates := f.observation.Unproven != unproven
	f.observation.Unproven = unproven
	g.mu.Unlock()
	if updates {
		g.Updates.add(report.EveryPeer)
	}
}

// listen reads lines until the connection ends or is silent.
func (g *Reader) listen(ctx context.Context, f *follower) (lines int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	url, proof, err := g.way(ctx, f)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("request the report of the gateway at %s: %w", f.observation.Address, err)
	}
	response, err := g.connect(proof).Do(request)
	g.recordProof(f, err)
	if err != nil {
		return 0, fmt.Errorf("connect to the gateway at %s: %w", f.observation.Address, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("gateway at %s answers %s", f.observation.Address, response.Status)
	}
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(make([]byte, 0, 4096), maxLine)
	for scanner.Scan() {
		var reported report.Gateway
		if err := json.Unmarshal(scanner.Bytes(), &reported); err != nil {
			return lines, fmt.Errorf("parse the report of the gateway at %s: %w", f.observation.Address, err)
		}
		lines++
		watchdog.Reset(silence)
		f.alarm.Reset(silence)
		g.note(f, &reported)
	}
	if err := scanner.Err(); err != nil {
		return lines, fmt.Errorf("read the report of the gateway at %s: %w", f.observation.Address, err)
	}
	return lines, errors.New("the gateway ended its report")
}

// note records a line, and enqueues the peers whose status changes by it.
func (g *Reader) note(f *follower, reported *report.Gateway) {
	g.mu.Lock()
	before := f.observation
	f.observation.Reported, f.observation.At, f.observation.Silent = *reported, time.Now(), false
	updates := report.ChangedPeers(&before, &f.observation)
	// Compare with the latency that was enqueued last, or a latency that creeps would never be enqueued.
	f.observation.Published = report.PublishedLatencies(before.Published, reported, updates)
	g.mu.Unlock()
	for _, clusterID := range updates {
		g.Updates.add(clusterID)
	}
}

func (g *Reader) Services(ctx context.Context) ([]corev1.Service, error) {
	var all corev1.ServiceList
	if err := g.Cache.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Services of gateways: %w", err)
	}
	return all.Items, nil
}

// Lanes returns the lanes of this cluster, which are those with a Service.
func (g *Reader) Lanes(ctx context.Context) (lanes []int, err error) {
	services, err := g.Services(ctx)
	if err != nil {
		return nil, err
	}
	for i := range services {
		if lane, ok := endpoint.LaneOf(services[i].Labels); ok {
			lanes = append(lanes, lane)
		}
	}
	return lanes, nil
}
