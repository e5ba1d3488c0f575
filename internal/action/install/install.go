// SPDX-License-Identifier: Apache-2.0

// Package install installs, upgrades and uninstalls Liqo with the chart that the program carries. It is the only
// importer of Helm, which doubles a program's size.
//
// Helm keeps the record of what is installed, and renders and applies the chart. What is not Helm's: finding out what
// the cluster is, resource definitions, which Helm never changes, waiting for pods, saying why they are not there, and taking back
// what did not work, for which Helm would wait once more.
//
// It must not know flags. Its proof is install_test.go, against a real API server, and the end-to-end tests.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	liqoaction "liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/provider"
	"liqo.io/liqo/internal/kube/crds"
)

// Release is the documented name of the Helm release.
const Release = "liqo"

// Options of an installation. What is not said here stays as it is, if Liqo is installed already.
type Options struct {
	Overrides provider.Overrides
	// Namespace to install in.
	Namespace string
	// ChartPath of a chart to be used instead of the one that the program carries.
	ChartPath string
	// Version that is wanted. Another chart's images have this tag; the program's own chart must be of this version.
	Version string
	// SharingPercentage of free resources for each peer.
	SharingPercentage *int
	// HighAvailability runs two replicas.
	HighAvailability bool
	// Metrics are served, and the Prometheus operator is told, if the cluster has it.
	Metrics bool
	// Set are values of the chart as Helm writes them: key=value,...
	Set []string
	// ResetValues forgets what was said at earlier installations.
	ResetValues bool
	// AllowDowngrade accepts an older version than what is installed.
	AllowDowngrade bool
	// DryRun changes nothing.
	DryRun bool
	// Wait until all of it works. Timeout bounds everything.
	Wait    bool
	Timeout time.Duration
}

// Cluster is where to install.
type Cluster struct {
	Getter genericclioptions.RESTClientGetter
	Config *rest.Config
	// Log receives what Helm logs; nil is silence, because what matters is in errors.
	Log slog.Handler
}

// client of the cluster, for definitions of resources too.
func (c Cluster) client() (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, discoveryv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.NewWithWatch(c.Config, client.Options{Scheme: scheme})
}

// helm prepares Helm for one namespace.
func (c Cluster) helm(namespace string) (*action.Configuration, error) {
	log := c.Log
	if log == nil {
		log = slog.DiscardHandler
	}
	config := action.NewConfiguration(action.ConfigurationSetLogger(log))
	if err := config.Init(c.Getter, namespace, "secret"); err != nil {
		return nil, fmt.Errorf("prepare Helm: %w", err)
	}
	return config, nil
}

// Prepared is an installation whose values have been made and checked.
type Prepared struct {
	options Options
	client  client.WithWatch
	chart   *chart.Chart
	helm    *action.Configuration
	last    *release.Release // what is installed, or nil

	// Values of the chart.
	Values map[string]any
	// Plan that they were made of.
	Plan provider.Plan
	// GeneratedName is the cluster's, if nobody gave it one.
	GeneratedName string
	// Unmonitored: metrics are wanted, and the cluster has no Prometheus operator to be told of them.
	Unmonitored bool
}

// Prepare finds out what is to be installed, and checks it. It changes nothing.
func Prepare(ctx context.Context, cluster Cluster, o Options) (*Prepared, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	p := &Prepared{options: o}
	var err error
	if p.chart, err = loadChart(o.ChartPath); err != nil {
		return nil, err
	}
	if err := checkWantedVersion(o, p.chart.Metadata.AppVersion); err != nil {
		return nil, err
	}
	set, err := parseSet(o.Set)
	if err != nil {
		return nil, err
	}
	if p.client, err = cluster.client(); err != nil {
		return nil, unreachable(cluster, err)
	}
	if p.helm, err = cluster.helm(o.Namespace); err != nil {
		return nil, err
	}
	facts, err := read(ctx, p.client, cluster.Config.Host)
	if err != nil {
		return nil, unreachable(cluster, err)
	}
	name, err := p.lookForOthers(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.loadLast(); err != nil {
		return nil, err
	}
	base, err := p.lastValues()
	if err != nil {
		return nil, err
	}
	if err := p.keepSharing(ctx, base); err != nil {
		return nil, err
	}
	overrides := remembered(o.Overrides, base)
	if p.Plan, err = provider.Decide(facts, overrides); err != nil {
		return nil, err
	}
	if err := p.name(name, overrides.ClusterName); err != nil {
		return nil, err
	}
	if o.Metrics {
		if p.Unmonitored, err = unmonitored(p.client); err != nil {
			return nil, unreachable(cluster, err)
		}
	}
	said := p.values(base)
	p.Values = merge(merge(base, said), set)
	return p, p.checkValues()
}

// unmonitored tells whether the cluster lacks the kinds by which the Prometheus operator is told what to read.
func unmonitored(c client.Client) (bool, error) {
	for _, kind := range []string{"ServiceMonitor", "PodMonitor"} {
		_, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: "monitoring.coreos.com", Kind: kind}, "v1")
		if meta.IsNoMatchError(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("look for the kind %s: %w", kind, err)
		}
	}
	return false, nil
}

// unreachable adds what to try to an error of the first contact.
func unreachable(cluster Cluster, err error) error {
	return fmt.Errorf("look at the cluster at %s: %w; see `kubectl cluster-info`, --context and --kubeconfig", cluster.Config.Host, err)
}

// Outcome is what an installation did.
type Outcome struct {
	// Unchanged: all of it was there already, as wanted.
	Unchanged bool
	// Version that is installed now.
	Version string
}

// Apply does what was prepared. Until all that can be checked has been checked, it changes nothing.
func (p *Prepared) Apply(ctx context.Context, progress liqoaction.Progress) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	out := Outcome{Version: p.chart.Metadata.AppVersion}
	progress.Start("Checking the installation against the cluster")
	if err := p.unlock(); err != nil {
		return out, err
	}
	rendered, err := p.run(ctx, action.DryRunServer)
	if err != nil {
		return out, fmt.Errorf("nothing was changed: %w", plain(err))
	}
	if p.options.DryRun {
		return out, nil
	}
	if out.Unchanged, err = p.inPlace(ctx, rendered); err != nil {
		return out, err
	}
	progress.Start("Applying resource definitions")
	all, err := definitions(p.chart)
	if err != nil {
		return out, err
	}
	if err := crds.Apply(ctx, p.client, all, func(string) {}); err != nil {
		return out, err
	}
	return out, p.bring(ctx, rendered, out.Unchanged, progress)
}

// bring has Helm do its work, if there is any, and waits for what comes of it.
func (p *Prepared) bring(ctx context.Context, rendered *release.Release, unchanged bool, progress liqoaction.Progress) error {
	inner, ok := p.helm.KubeClient.(*kube.Client)
	if !ok {
		return fmt.Errorf("a client of Helm that this program does not know: %T", p.helm.KubeClient)
	}
	waiting := &waitingClient{inner, waiter{ctx: ctx, client: p.client, namespace: p.options.Namespace, progress: progress, skip: !p.options.Wait}}
	p.helm.KubeClient = waiting
	if unchanged {
		objects, err := inner.Build(bytes.NewBufferString(rendered.Manifest), false)
		if err != nil {
			return err
		}
		if err := waiting.wait.Wait(objects, 0); err != nil {
			return fmt.Errorf("all of Liqo is installed, but not ready: %w%s", err, see(context.WithoutCancel(ctx), p.client, p.options.Namespace).hints(p.options.Namespace))
		}
		return nil
	}
	created, err := p.ensureNamespace(ctx)
	if err != nil {
		return err
	}
	progress.Start("Installing Liqo " + p.chart.Metadata.AppVersion)
	// The waiter knows when to stop. Helm would leave its work where it is, and go on with it unseen.
	if _, err := p.run(context.WithoutCancel(ctx), action.DryRunNone); err != nil {
		progress.Start("Taking back what did not work")
		return p.takeBack(ctx, waiting, plain(err), created)
	}
	for _, service := range see(ctx, p.client, p.options.Namespace).services {
		if service.Spec.Type == corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) == 0 && p.options.Wait {
			progress.Warn(noAddress(service.Name))
		}
	}
	return nil
}

// takeBack undoes an installation or upgrade that failed, and says why it did. The context may have ended.
func (p *Prepared) takeBack(ctx context.Context, waiting *waitingClient, failed error, created *corev1.Namespace) error {
	what := "the installation failed"
	if p.last != nil {
		what = "the upgrade failed"
	}
	switch {
	case errors.Is(failed, context.DeadlineExceeded):
		what = fmt.Sprintf("Liqo was not ready after %s; more time is given by --timeout", p.options.Timeout)
	case errors.Is(failed, context.Canceled):
		what = "the installation was interrupted"
	default:
		what += ": " + failed.Error()
	}
	// What is seen must be seen before it is taken away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	text := see(ctx, p.client, p.options.Namespace).hints(p.options.Namespace)
	waiting.wait.ctx, waiting.wait.skip = ctx, true
	if err := p.undo(ctx, created); err != nil {
		return fmt.Errorf("%s%s\ntaking it back failed, too: %w; try `liqoctl uninstall`", what, text, err)
	}
	if p.last != nil {
		return fmt.Errorf("%s%s\nthe version and values from before are back", what, text)
	}
	return fmt.Errorf("%s%s\nwhat was installed has been removed again, resource definitions excepted", what, text)
}
