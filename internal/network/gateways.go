// SPDX-License-Identifier: Apache-2.0

package network

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
	// apiServerSlice is the EndpointSlice with the addresses of the API servers.
	apiServerSlice = "kubernetes"
)

// gateways follows the reports of the gateway pods, one connection each, and records which peers changed.
type gateways struct {
	// cache holds the gateways' pods and Services, the Secret with their keys and the endpoints of our API server.
	cache   cache.Cache
	updates *updates
	// port has the report of gateways of earlier versions, securePort that of the others.
	port, securePort int
	// connect returns a client that requests a report, over TLS if it is HTTPS.
	connect func(proof *tls.Config) *http.Client
	// key returns the private key of the gateway of a lane, which proves it.
	key func(ctx context.Context, lane int) ([keySize]byte, error)

	mu        sync.Mutex
	followers map[string]*follower // by name of the pod
}

// follower follows one gateway pod. The lock of gateways guards its fields.
type follower struct {
	observation observation
	uid         string
	// secure: the gateway has its report over TLS.
	secure bool
	stop   context.CancelFunc
	// alarm fires after silence, whatever the state of the connection.
	alarm   *time.Timer
	stopped chan struct{}
}

// gatewaysOptions are where the gateways run, and where they report.
type gatewaysOptions struct {
	// Namespace is the install namespace, where the gateways run.
	Namespace string
	// SecureReportPort is the port of the gateways' reports, ReportPort that of gateways of earlier versions. Default 5877 and 5873.
	SecureReportPort, ReportPort int
}

// newGateways returns what follows the gateways. It is not registered yet.
func newGateways(mgr manager.Manager, o gatewaysOptions) (*gateways, error) {
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
			&corev1.Secret{}:          here(cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", KeysSecret)}),
			&discoveryv1.EndpointSlice{}: {Namespaces: map[string]cache.Config{
				corev1.NamespaceDefault: {FieldSelector: fields.OneTermEqualSelector("metadata.name", apiServerSlice)},
			}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("create cache of gateways: %w", err)
	}
	g := &gateways{
		cache: own, port: cmp.Or(o.ReportPort, report.Port), securePort: cmp.Or(o.SecureReportPort, report.SecurePort), updates: newUpdates(), followers: map[string]*follower{},
		connect: reportClient,
	}
	g.key = func(ctx context.Context, lane int) ([keySize]byte, error) { return keyOf(ctx, own, o.Namespace, lane) }
	return g, mgr.Add(own)
}

// keyOf reads the private key of the gateway of a lane.
func keyOf(ctx context.Context, from client.Reader, namespace string, lane int) (key [keySize]byte, err error) {
	var secret corev1.Secret
	if err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: KeysSecret}, &secret); err != nil {
		return key, fmt.Errorf("read the key that proves the gateway of lane %d: %w", lane, err)
	}
	all, err := GatewayKeys(&secret)
	if err != nil {
		return key, err
	}
	one, ok := all[lane]
	if !ok {
		return key, fmt.Errorf("no key that proves the gateway of lane %d in Secret %s yet", lane, KeysSecret)
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
func (g *gateways) way(ctx context.Context, f *follower) (url string, proof *tls.Config, _ error) {
	scheme, port := "http", g.port
	if f.secure {
		scheme, port = "https", g.securePort
		key, err := g.key(ctx, f.observation.lane)
		if err != nil {
			return "", nil, err
		}
		if proof, err = report.Reader(key); err != nil {
			return "", nil, err
		}
	}
	return scheme + "://" + net.JoinHostPort(f.observation.address, strconv.Itoa(port)) + report.Path, proof, nil
}

func (g *gateways) setup(mgr manager.Manager) error {
	err := builder.ControllerManagedBy(mgr).Named("gateways").
		WatchesRawSource(source.Kind[client.Object](g.cache, &corev1.Pod{}, &handler.EnqueueRequestForObject{})).
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
func (g *gateways) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	err := g.cache.Get(ctx, request.NamespacedName, &pod)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read gateway pod %s: %w", request.Name, err)
	}
	lane, ok := laneOf(pod.Labels)
	// A deleted pod may keep reporting for long on a node whose kubelet is dead, but its report no longer counts.
	if err != nil || !ok || pod.Status.PodIP == "" || podphase.Final(pod.Status.Phase) || pod.DeletionTimestamp != nil {
		g.unfollow(request.Name)
		return reconcile.Result{}, nil
	}
	g.follow(ctx, &pod, lane)
	return reconcile.Result{}, nil
}

func (g *gateways) follow(ctx context.Context, pod *corev1.Pod, lane int) {
	g.mu.Lock()
	has := g.followers[pod.Name]
	same := has != nil && has.uid == string(pod.UID) && has.observation.address == pod.Status.PodIP && has.observation.lane == lane
	g.mu.Unlock()
	if same {
		return
	}
	g.unfollow(pod.Name)
	// The context of this reconcile ends before the follower does.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &follower{
		uid: string(pod.UID), secure: reportsSecurely(pod), stop: stop, stopped: make(chan struct{}),
		observation: observation{lane: lane, pod: pod.Name, address: pod.Status.PodIP, silent: true},
	}
	f.alarm = time.AfterFunc(silence, func() { g.recordSilence(f) })
	g.mu.Lock()
	g.followers[pod.Name] = f
	g.mu.Unlock()
	go g.run(following, f)
	g.updates.add(everyPeer)
}

func (g *gateways) unfollow(name string) {
	g.mu.Lock()
	f := g.followers[name]
	delete(g.followers, name)
	g.mu.Unlock()
	if f == nil {
		return
	}
	f.stop()
	<-f.stopped
	g.updates.add(everyPeer)
}

func (g *gateways) stopAll() {
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

// observations returns the last report of each lane's gateway. While a pod replaces another, the one that reports counts.
func (g *gateways) observations() map[int]observation {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[int]observation{}
	for _, f := range g.followers {
		other, ok := all[f.observation.lane]
		if !ok || other.silent && !f.observation.silent || other.silent == f.observation.silent && f.observation.at.After(other.at) {
			all[f.observation.lane] = f.observation
		}
	}
	return all
}

// run keeps a connection to the gateway until ctx ends.
func (g *gateways) run(ctx context.Context, f *follower) {
	defer close(f.stopped)
	defer f.alarm.Stop()
	pause := retryFirst
	for ctx.Err() == nil {
		lines, err := g.listen(ctx, f)
		if ctx.Err() != nil {
			return
		}
		log.FromContext(ctx).V(1).Info("connection to a gateway's report ended", "pod", f.observation.pod, "address", f.observation.address, "lines", lines, "reason", err.Error())
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
func (g *gateways) recordSilence(f *follower) {
	g.mu.Lock()
	updates := !f.observation.silent
	f.observation.silent = true
	g.mu.Unlock()
	if updates {
		g.updates.add(everyPeer)
	}
}

// recordProof records whether what answers in the place of a gateway has its key. An attempt that did not get so far changes nothing.
func (g *gateways) recordProof(f *follower, err error) {
	var refused *tls.CertificateVerificationError
	unproven := errors.As(err, &refused)
	if err != nil && !unproven {
		return
	}
	g.mu.Lock()
	updates := f.observation.unproven != unproven
	f.observation.unproven = unproven
	g.mu.Unlock()
	if updates {
		g.updates.add(everyPeer)
	}
}

// listen reads lines until the connection ends or is silent.
func (g *gateways) listen(ctx context.Context, f *follower) (lines int, err error) {
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
		return 0, fmt.Errorf("request the report of the gateway at %s: %w", f.observation.address, err)
	}
	response, err := g.connect(proof).Do(request)
	g.recordProof(f, err)
	if err != nil {
		return 0, fmt.Errorf("connect to the gateway at %s: %w", f.observation.address, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("gateway at %s answers %s", f.observation.address, response.Status)
	}
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(make([]byte, 0, 4096), maxLine)
	for scanner.Scan() {
		var reported report.Gateway
		if err := json.Unmarshal(scanner.Bytes(), &reported); err != nil {
			return lines, fmt.Errorf("parse the report of the gateway at %s: %w", f.observation.address, err)
		}
		lines++
		watchdog.Reset(silence)
		f.alarm.Reset(silence)
		g.note(f, &reported)
	}
	if err := scanner.Err(); err != nil {
		return lines, fmt.Errorf("read the report of the gateway at %s: %w", f.observation.address, err)
	}
	return lines, errors.New("the gateway ended its report")
}

// note records a line, and enqueues the peers whose status changes by it.
func (g *gateways) note(f *follower, reported *report.Gateway) {
	g.mu.Lock()
	before := f.observation
	f.observation.reported, f.observation.at, f.observation.silent = *reported, time.Now(), false
	updates := changedPeers(&before, &f.observation)
	// Compare with the latency that was enqueued last, or a latency that creeps would never be enqueued.
	f.observation.published = publishedLatencies(before.published, reported, updates)
	g.mu.Unlock()
	for _, clusterID := range updates {
		g.updates.add(clusterID)
	}
}

// services returns those of the gateways.
func (g *gateways) services(ctx context.Context) ([]corev1.Service, error) {
	var all corev1.ServiceList
	if err := g.cache.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Services of gateways: %w", err)
	}
	return all.Items, nil
}

// ownLanes returns the lanes of this cluster, which are those with a Service.
func (g *gateways) ownLanes(ctx context.Context) (lanes []int, err error) {
	services, err := g.services(ctx)
	if err != nil {
		return nil, err
	}
	for i := range services {
		if lane, ok := laneOf(services[i].Labels); ok {
			lanes = append(lanes, lane)
		}
	}
	return lanes, nil
}
