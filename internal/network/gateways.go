// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	"liqo.io/liqo/internal/network/report"
)

// +kubebuilder:rbac:namespace=liqo,groups="",resources=pods;services,verbs=list;watch

const (
	// silence is how long a gateway may say nothing. It says something each second.
	silence = 4 * time.Second
	// maxLine bounds what is read of one report: a thousand nodes and a hundred peers fit, at a hundred bytes for each pair.
	maxLine = 16 << 20
	// retryFirst and retryLast are the pauses between attempts to reach a gateway.
	retryFirst, retryLast = 50 * time.Millisecond, time.Second
	// everyPeer is the event that concerns all.
	everyPeer = ""
)

// gateways follows the reports of the gateway pods, one connection each, and tells when one says something else.
type gateways struct {
	// cache holds the gateways' pods and Services, the Secret with their keys, where our API server is, and nothing else.
	cache  cache.Cache
	client *http.Client
	port   int
	news   *news

	mu        sync.Mutex
	followers map[string]*follower // by name of the pod
}

// follower is one gateway pod. Its fields are guarded by the gateways' lock.
type follower struct {
	heard heard
	uid   string
	stop  context.CancelFunc
	// alarm goes off when nothing was heard for too long, whatever the connection does.
	alarm   *time.Timer
	stopped chan struct{}
}

func newGateways(mgr manager.Manager, o *Options) (*gateways, error) {
	here := func(selector cache.Config) cache.ByObject {
		return cache.ByObject{Namespaces: map[string]cache.Config{o.Namespace: selector}}
	}
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:     here(cache.Config{LabelSelector: klabels.SelectorFromSet(klabels.Set{labels.Gateway: labels.GatewayActive})}),
			&corev1.Service{}: here(cache.Config{LabelSelector: klabels.SelectorFromSet(klabels.Set{labels.Gateway: annotationTrue})}),
			&corev1.Secret{}:  here(cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", KeysSecret)}),
			&discoveryv1.EndpointSlice{}: {Namespaces: map[string]cache.Config{
				corev1.NamespaceDefault: {FieldSelector: fields.OneTermEqualSelector("metadata.name", apiServerSlice)},
			}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of gateways: %w", err)
	}
	g := &gateways{
		cache: own, port: o.ReportPort, news: newNews(), followers: map[string]*follower{}, client: reportClient(),
	}
	return g, mgr.Add(own)
}

// reportClient asks gateway pods and nobody else: no proxy, no redirect.
func reportClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext, ResponseHeaderTimeout: silence, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
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

// reconcile follows a pod that runs, and no other.
func (g *gateways) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	err := g.cache.Get(ctx, request.NamespacedName, &pod)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read gateway pod %s: %w", request.Name, err)
	}
	lane, ok := laneOf(pod.Labels)
	// One that is to end may go on to speak for long, on a node whose kubelet is dead, but it has nothing to say any more.
	ends := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
	if err != nil || !ok || pod.Status.PodIP == "" || ends {
		g.unfollow(request.Name)
		return reconcile.Result{}, nil
	}
	g.follow(ctx, &pod, lane)
	return reconcile.Result{}, nil
}

func (g *gateways) follow(ctx context.Context, pod *corev1.Pod, lane int) {
	g.mu.Lock()
	has := g.followers[pod.Name]
	same := has != nil && has.uid == string(pod.UID) && has.heard.address == pod.Status.PodIP && has.heard.lane == lane
	g.mu.Unlock()
	if same {
		return
	}
	g.unfollow(pod.Name)
	// Not the context of this look, which ends with it.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &follower{
		uid: string(pod.UID), stop: stop, stopped: make(chan struct{}),
		heard: heard{lane: lane, pod: pod.Name, address: pod.Status.PodIP, silent: true},
	}
	f.alarm = time.AfterFunc(silence, func() { g.noteSilence(f) })
	g.mu.Lock()
	g.followers[pod.Name] = f
	g.mu.Unlock()
	go g.run(following, f)
	g.news.tell(everyPeer)
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
	g.news.tell(everyPeer)
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

// heardOf returns what each lane's gateway said last. While a pod replaces another, the one that speaks counts.
func (g *gateways) heardOf() map[int]heard {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[int]heard{}
	for _, f := range g.followers {
		other, ok := all[f.heard.lane]
		if !ok || other.silent && !f.heard.silent || other.silent == f.heard.silent && f.heard.at.After(other.at) {
			all[f.heard.lane] = f.heard
		}
	}
	return all
}

// run connects again and again.
func (g *gateways) run(ctx context.Context, f *follower) {
	defer close(f.stopped)
	defer f.alarm.Stop()
	pause := retryFirst
	for ctx.Err() == nil {
		lines, err := g.listen(ctx, f)
		if ctx.Err() != nil {
			return
		}
		log.FromContext(ctx).V(1).Info("gateway not heard", "pod", f.heard.pod, "address", f.heard.address, "lines", lines, "reason", err.Error())
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

// noteSilence says so once.
func (g *gateways) noteSilence(f *follower) {
	g.mu.Lock()
	news := !f.heard.silent
	f.heard.silent = true
	g.mu.Unlock()
	if news {
		g.news.tell(everyPeer)
	}
}

// listen reads lines until the connection ends or is silent.
func (g *gateways) listen(ctx context.Context, f *follower) (lines int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	url := "http://" + net.JoinHostPort(f.heard.address, strconv.Itoa(g.port)) + report.Path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("ask gateway at %s: %w", f.heard.address, err)
	}
	response, err := g.client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask gateway at %s: %w", f.heard.address, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("gateway at %s answers %s", f.heard.address, response.Status)
	}
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(make([]byte, 0, 4096), maxLine)
	for scanner.Scan() {
		var said report.Gateway
		if err := json.Unmarshal(scanner.Bytes(), &said); err != nil {
			return lines, fmt.Errorf("understand gateway at %s: %w", f.heard.address, err)
		}
		lines++
		watchdog.Reset(silence)
		f.alarm.Reset(silence)
		g.note(f, &said)
	}
	if err := scanner.Err(); err != nil {
		return lines, fmt.Errorf("read gateway at %s: %w", f.heard.address, err)
	}
	return lines, errors.New("the gateway ended its report")
}

// note keeps a line, and tells of the peers of which it says something that is worth writing.
func (g *gateways) note(f *follower, said *report.Gateway) {
	g.mu.Lock()
	before := f.heard
	f.heard.said, f.heard.at, f.heard.silent = *said, time.Now(), false
	news := whatIsNew(&before, &f.heard)
	// The latency that was told last stays the one to compare with, or it could creep away unseen.
	f.heard.told = toldLatencies(before.told, said, news)
	g.mu.Unlock()
	for _, clusterID := range news {
		g.news.tell(clusterID)
	}
}
