// SPDX-License-Identifier: Apache-2.0

// Package install installs, upgrades and uninstalls Liqo with the chart that the program carries. It is the only
// importer of Helm, which doubles a program's size.
//
// It must not know flags. Its proof is install_test.go, against a real API server, and the end-to-end tests.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/storage/driver"
	"helm.sh/helm/v4/pkg/strvals"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	embedded "liqo.io/liqo/deployments/liqo"
	liqoaction "liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/provider"
	"liqo.io/liqo/internal/kube/crds"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// Release is the documented name of the Helm release.
const Release = "liqo"

// Options of an installation.
type Options struct {
	Wishes provider.Wishes
	// Namespace to install in.
	Namespace string
	// ChartPath of a chart to be used instead of the one that the program carries.
	ChartPath string
	// Labels of the cluster, which its virtual nodes elsewhere will have.
	Labels map[string]string
	// SharingPercentage of free resources for each peer.
	SharingPercentage int
	// HighAvailability runs two replicas.
	HighAvailability bool
	// Set are values of the chart as Helm writes them: key=value,...
	Set []string
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
}

// client of the cluster, for definitions of resources too.
func (c Cluster) client() (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, discoveryv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.New(c.Config, client.Options{Scheme: scheme})
}

// helm prepares Helm for one namespace. Its own logs are silent: what it has to say is in its errors.
func (c Cluster) helm(namespace string) (*action.Configuration, error) {
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := config.Init(c.Getter, namespace, "secret"); err != nil {
		return nil, fmt.Errorf("prepare Helm: %w", err)
	}
	return config, nil
}

// Prepared is an installation that has been checked.
type Prepared struct {
	options Options
	cluster Cluster
	client  client.Client
	chart   *chart.Chart
	helm    *action.Configuration
	// Values of the chart.
	Values map[string]any
	// Plan that they were made of.
	Plan provider.Plan
	// Upgrade of what is there.
	Upgrade bool
}

// Prepare finds out what is to be installed and checks all of it. It changes nothing.
func Prepare(ctx context.Context, cluster Cluster, o Options) (*Prepared, error) {
	p := &Prepared{options: o, cluster: cluster}
	var err error
	if p.chart, err = loadChart(o.ChartPath); err != nil {
		return nil, err
	}
	set, err := parseSet(o.Set)
	if err != nil {
		return nil, err
	}
	if p.client, err = cluster.client(); err != nil {
		return nil, err
	}
	facts, err := read(ctx, p.client, cluster.Config.Host)
	if err != nil {
		return nil, fmt.Errorf("look at the cluster at %s: %w", cluster.Config.Host, err)
	}
	if p.Plan, err = provider.Decide(facts, o.Wishes); err != nil {
		return nil, err
	}
	p.Values = merge(values(p.Plan, o), set)
	if err := p.checkValues(); err != nil {
		return nil, err
	}
	if p.helm, err = cluster.helm(o.Namespace); err != nil {
		return nil, err
	}
	return p, p.checkRelease(ctx)
}

// loadChart reads the chart from a folder or an archive; from the program itself if there is no path.
func loadChart(path string) (*chart.Chart, error) {
	if path != "" {
		loaded, err := loader.Load(path)
		if err != nil {
			return nil, fmt.Errorf("chart %s: %w", path, err)
		}
		return loaded, nil
	}
	var files []*archive.BufferedFile
	err := fs.WalkDir(embedded.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(embedded.FS, path)
		files = append(files, &archive.BufferedFile{Name: path, Data: text})
		return err
	})
	if err != nil {
		return nil, err
	}
	return loader.LoadFiles(files)
}

func parseSet(all []string) (map[string]any, error) {
	parsed := map[string]any{}
	for _, one := range all {
		if err := strvals.ParseInto(one, parsed); err != nil {
			return nil, fmt.Errorf("--set %s: %w; want key=value", one, err)
		}
	}
	return parsed, nil
}

// values of the chart, from the plan.
func values(p provider.Plan, o Options) map[string]any {
	labels := map[string]any{}
	for key, value := range o.Labels {
		labels[key] = value
	}
	if p.Kind != provider.Auto {
		labels["liqo.io/provider"] = string(p.Kind)
	}
	manager := map[string]any{"config": map[string]any{"resourceSharingPercentage": o.SharingPercentage}}
	if o.HighAvailability {
		manager["replicas"] = 2
	}
	reserved := make([]any, len(p.ReservedSubnets))
	for i, one := range p.ReservedSubnets {
		reserved[i] = one
	}
	all := map[string]any{
		"controllerManager": manager,
		"discovery":         map[string]any{"config": map[string]any{"clusterName": o.Wishes.ClusterName, "clusterLabels": labels}},
		"apiServer":         map[string]any{"address": p.Published()},
		"networkManager":    map[string]any{"config": map[string]any{"podCIDR": p.PodCIDR, "serviceCIDR": p.ServiceCIDR, "reservedSubnets": reserved}},
		// The definitions are applied before the chart is.
		"crds": map[string]any{"upgrade": false},
	}
	if p.ServiceType != "" {
		all["auth"] = map[string]any{"service": map[string]any{"type": p.ServiceType}}
	}
	return all
}

// merge puts over on top of base.
func merge(base, over map[string]any) map[string]any {
	for key, value := range over {
		below, isMap := base[key].(map[string]any)
		above, both := value.(map[string]any)
		if isMap && both {
			base[key] = merge(below, above)
		} else {
			base[key] = value
		}
	}
	return base
}

// checkValues holds the values to the chart's schema, so that a slip of the pen is not installed.
func (p *Prepared) checkValues() error {
	all, err := chartutil.CoalesceValues(p.chart, p.Values)
	if err != nil {
		return fmt.Errorf("values: %w", err)
	}
	if err := chartutil.ValidateAgainstSchema(p.chart, all); err != nil {
		return fmt.Errorf("the chart refuses the values: %s; see the README of the chart for what there is", strings.TrimSpace(err.Error()))
	}
	return nil
}

// checkRelease refuses to touch what somebody else installed, and to go back to an older version.
func (p *Prepared) checkRelease(ctx context.Context) error {
	others, err := installed(ctx, p.client)
	if err != nil {
		return err
	}
	for namespace, owner := range others {
		if namespace != p.options.Namespace {
			return fmt.Errorf("Liqo is installed in namespace %s of this cluster already; add -n %s to upgrade it, or uninstall it there first", namespace, namespace)
		}
		if owner != Release {
			return fmt.Errorf("Liqo was installed in namespace %s as release %q, not by liqoctl, which calls it %q; uninstall it as it was installed", namespace, owner, Release)
		}
	}
	history, err := action.NewHistory(p.helm).Run(Release)
	if errors.Is(err, driver.ErrReleaseNotFound) || err == nil && len(history) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for release %s in namespace %s: %w", Release, p.options.Namespace, err)
	}
	p.Upgrade = true
	have, err := Version(p.helm)
	if err != nil {
		return err
	}
	return checkVersion(have, p.chart.Metadata.AppVersion)
}

// Apply does what was prepared.
func (p *Prepared) Apply(ctx context.Context, progress liqoaction.Progress) error {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	progress.Start("Applying resource definitions")
	definitions, err := crds.Load(embedded.FS)
	if err != nil {
		return err
	}
	if !p.options.DryRun {
		if err := crds.Apply(ctx, p.client, definitions, func(string) {}); err != nil {
			return err
		}
	}
	progress.Start("Installing, and waiting for pods to be ready")
	if p.Upgrade {
		err = p.upgrade(ctx)
	} else {
		err = p.install(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, p.hints())
	}
	return nil
}

func (p *Prepared) strategy() kube.WaitStrategy {
	if p.options.Wait {
		return kube.StatusWatcherStrategy
	}
	return kube.HookOnlyStrategy
}

func (p *Prepared) install(ctx context.Context) error {
	helm := action.NewInstall(p.helm)
	helm.ReleaseName, helm.Namespace, helm.CreateNamespace = Release, p.options.Namespace, true
	helm.SkipCRDs, helm.Timeout, helm.WaitStrategy = true, p.options.Timeout, p.strategy()
	helm.RollbackOnFailure = p.options.Wait
	if p.options.DryRun {
		helm.DryRunStrategy, helm.RollbackOnFailure = action.DryRunServer, false
	}
	if _, err := helm.RunWithContext(ctx, p.chart, p.Values); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	return nil
}

func (p *Prepared) upgrade(ctx context.Context) error {
	helm := action.NewUpgrade(p.helm)
	helm.Namespace, helm.ResetValues, helm.MaxHistory = p.options.Namespace, true, 5
	helm.SkipCRDs, helm.Timeout, helm.WaitStrategy = true, p.options.Timeout, p.strategy()
	helm.ForceConflicts = true
	if p.options.DryRun {
		helm.DryRunStrategy = action.DryRunServer
	}
	if _, err := helm.RunWithContext(ctx, Release, p.chart, p.Values); err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	return nil
}
