// SPDX-License-Identifier: Apache-2.0

// Package install installs, upgrades and uninstalls Liqo with the chart that the program embeds. It is the only importer of
// Helm, which doubles the size of a program.
//
// Helm renders and applies the chart, and keeps the record of the release. This package detects the properties of the cluster,
// applies the resource definitions, which Helm never changes, waits for pods, reports why they do not run, and undoes a failed
// installation, for which Helm would wait once more.
//
// It must not know flags. Its proof is install_test.go, against a real API server, and the end-to-end tests.
package install

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqoaction "liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/install/clusters"
	"liqo.io/liqo/internal/action/install/facts"
	"liqo.io/liqo/internal/kube/crds"
	"liqo.io/liqo/internal/kube/scheme"
)

// Release is the documented name of the Helm release.
const Release = "liqo"

// Options of an installation. If Liqo is installed already, empty options keep their current values.
type Options struct {
	Overrides clusters.Overrides
	// Namespace to install in.
	Namespace string
	// ChartPath of a chart that replaces the embedded one.
	ChartPath string
	// Version to install. With ChartPath it is the tag of the images; otherwise it must be the version of the embedded chart.
	Version string
	// SharingPercentage of free resources for each peer.
	SharingPercentage *int
	// HighAvailability runs two replicas, or one again. Metrics makes components serve metrics, and creates monitors if the cluster has the Prometheus operator,
	// or takes both back. nil leaves what earlier installations have set.
	HighAvailability, Metrics *bool
	// Set are values of the chart in the syntax of Helm: key=value,...
	Set []string
	// ResetValues forgets the values of earlier installations.
	ResetValues bool
	// AllowDowngrade accepts a version older than the installed one.
	AllowDowngrade bool
	// DryRun changes nothing.
	DryRun bool
	// Wait until all workloads are ready. Timeout bounds the whole action.
	Wait    bool
	Timeout time.Duration
}

type Cluster struct {
	Getter genericclioptions.RESTClientGetter
	Config *rest.Config
	// Log receives the log of Helm; nil discards it, because errors hold everything that matters.
	Log slog.Handler
}

// client of the cluster that also knows resource definitions.
func (c Cluster) client() (client.WithWatch, error) {
	kinds, err := scheme.All(apiextensionsv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(c.Config, client.Options{Scheme: kinds})
}

func (c Cluster) helm(namespace string) (*action.Configuration, error) {
	config := action.NewConfiguration(action.ConfigurationSetLogger(cmp.Or(c.Log, slog.DiscardHandler)))
	if err := config.Init(c.Getter, namespace, "secret"); err != nil {
		return nil, fmt.Errorf("prepare Helm: %w", err)
	}
	return config, nil
}

// Prepared is an installation with complete and validated values.
type Prepared struct {
	options Options
	client  client.WithWatch
	chart   *chart.Chart
	helm    *action.Configuration
	last    *release.Release // the installed release, or nil
	run     string           // distinguishes the Helm records of this run from those of others

	// Values of the chart.
	Values map[string]any
	// Plan is the source of the values.
	Plan clusters.Plan
	// GeneratedName is the name of the cluster if the user gave none.
	GeneratedName string
	// Unmonitored: metrics are enabled, but the cluster has no Prometheus operator, so there are no monitors.
	Unmonitored bool
}

// Prepare determines the values of the installation and checks them. It changes nothing.
func Prepare(ctx context.Context, cluster Cluster, o Options) (*Prepared, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	p := &Prepared{options: o, run: rand.Text()}
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
	observed, err := facts.Read(ctx, p.client, cluster.Config.Host)
	if err != nil {
		return nil, unreachable(cluster, err)
	}
	name, err := p.checkInstallations(ctx)
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
	overrides := inherit(o.Overrides, base)
	if p.Plan, err = clusters.Decide(observed, overrides); err != nil {
		return nil, err
	}
	if err := p.name(name, overrides.ClusterName); err != nil {
		return nil, err
	}
	if o.Metrics != nil && *o.Metrics {
		if p.Unmonitored, err = unmonitored(p.client); err != nil {
			return nil, unreachable(cluster, err)
		}
	}
	chosen := p.values(base)
	p.Values = merge(merge(base, chosen), set)
	return p, p.checkValues()
}

// unmonitored reports whether the cluster lacks the kinds that configure the Prometheus operator.
func unmonitored(c client.Client) (bool, error) {
	for _, kind := range []string{"ServiceMonitor", "PodMonitor"} {
		_, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: "monitoring.coreos.com", Kind: kind}, "v1")
		if meta.IsNoMatchError(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("find the kind %s: %w", kind, err)
		}
	}
	return false, nil
}

// unreachable adds a remedy to an error of the first contact with the cluster.
func unreachable(cluster Cluster, err error) error {
	return fmt.Errorf("read the cluster at %s: %w; see `kubectl cluster-info`, --context and --kubeconfig", cluster.Config.Host, err)
}

type Outcome struct {
	// Unchanged: everything was already installed with these values.
	Unchanged bool
	// Version is the installed one.
	Version string
}

// Apply runs the installation. It changes nothing before all checks have passed.
func (p *Prepared) Apply(ctx context.Context, progress liqoaction.Progress) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	out := Outcome{Version: p.chart.Metadata.AppVersion}
	progress.Start("Checking the installation against the cluster")
	if err := p.unlock(); err != nil {
		return out, err
	}
	rendered, err := p.helmRun(ctx, action.DryRunServer)
	if err != nil {
		return out, fmt.Errorf("nothing was changed: %w", plain(err))
	}
	for _, note := range notes(rendered.Info.Notes) {
		progress.Warn(note)
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
	return out, p.runHelm(ctx, rendered, out.Unchanged, progress)
}

// runHelm installs or upgrades the release unless it is unchanged, and waits until its workloads are ready.
func (p *Prepared) runHelm(ctx context.Context, rendered *release.Release, unchanged bool, progress liqoaction.Progress) error {
	inner, ok := p.helm.KubeClient.(*kube.Client)
	if !ok {
		return fmt.Errorf("unknown type of Helm client: %T", p.helm.KubeClient)
	}
	waiting := &waitingClient{inner, waiter{ctx: ctx, client: p.client, namespace: p.options.Namespace, progress: progress, skip: !p.options.Wait}}
	p.helm.KubeClient = waiting
	if unchanged {
		objects, err := inner.Build(bytes.NewBufferString(rendered.Manifest), false)
		if err != nil {
			return err
		}
		if err := waiting.wait.Wait(objects, 0); err != nil {
			return fmt.Errorf("the installed Liqo is not ready: %w%s", err, observe(context.WithoutCancel(ctx), p.client,
				p.options.Namespace).hints(p.options.Namespace))
		}
		return nil
	}
	created, err := p.ensureNamespace(ctx, progress)
	if err != nil {
		return err
	}
	progress.Start("Installing Liqo " + p.chart.Metadata.AppVersion)
	// The waiter observes the end of the context. Helm itself would return and continue in the background.
	if _, err := p.helmRun(context.WithoutCancel(ctx), action.DryRunNone); err != nil {
		progress.Start("Undoing the failed installation")
		return p.rollBack(ctx, waiting, plain(err), created, progress)
	}
	for _, service := range observe(ctx, p.client, p.options.Namespace).services {
		if service.Spec.Type == corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) == 0 && p.options.Wait {
			progress.Warn(noAddress(service.Name))
		}
	}
	return nil
}

// rollBack undoes a failed installation or upgrade and reports the reason. The context may have ended.
func (p *Prepared) rollBack(ctx context.Context, waiting *waitingClient, failed error, created *corev1.Namespace, progress liqoaction.Progress) error {
	// Observe the failed pods before they are removed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	text := observe(ctx, p.client, p.options.Namespace).hints(p.options.Namespace)
	waiting.wait.ctx, waiting.wait.skip = ctx, true
	working, other, err := p.revisions(ctx)
	if err != nil {
		return fmt.Errorf("%s%s\nit was not undone, because a version that worked before must not be removed: %w; run the command again when the API server answers",
			p.reason(failed, p.last != nil), text, err)
	}
	what := p.reason(failed, working != nil) + text
	if other != nil {
		return fmt.Errorf("%s\nanother installation of Liqo began meanwhile (revision %d, %s), so nothing was undone: wait until it ends, then run the "+
			"command again", what, other.Version, other.Info.Status)
	}
	if working != nil {
		if err := p.undoUpgrade(working); err != nil {
			return fmt.Errorf("%s\nrestoring the previous version also failed: %w; run the command again", what, err)
		}
		return fmt.Errorf("%s\nthe previous version and values were restored", what)
	}
	if err := p.undoInstallation(ctx, created, progress); err != nil {
		return fmt.Errorf("%s\nundoing it also failed: %w; try `liqoctl uninstall`", what, err)
	}
	return fmt.Errorf("%s\nthe installed objects have been removed again, except for the resource definitions", what)
}

// reason is why an installation or upgrade failed, for the user.
func (p *Prepared) reason(failed error, upgrade bool) string {
	switch {
	case errors.Is(failed, context.DeadlineExceeded):
		return fmt.Sprintf("Liqo was not ready after %s; --timeout gives more time", p.options.Timeout)
	case errors.Is(failed, context.Canceled) && upgrade:
		return "the upgrade was interrupted"
	case errors.Is(failed, context.Canceled):
		return "the installation was interrupted"
	case upgrade:
		return "the upgrade failed: " + failed.Error()
	}
	return "the installation failed: " + failed.Error()
}
