// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	helmrelease "helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	liqoaction "liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/purge"
)

var ErrNotInstalled = errors.New("there is no Liqo in this cluster; see `liqoctl install --help`")

// installation is found by the ConfigMap that each one has.
type installation struct{ namespace, release, clusterName string }

func installed(ctx context.Context, c client.Reader) (found []installation, err error) {
	var all corev1.ConfigMapList
	if err := c.List(ctx, &all, client.MatchingLabels{labels.AppName: "clusterid-configmap"}); err != nil {
		return nil, fmt.Errorf("list installations: %w", err)
	}
	for i := range all.Items {
		one := &all.Items[i]
		found = append(found, installation{one.Namespace, one.Annotations["meta.helm.sh/release-name"], one.Data["CLUSTER_NAME"]})
	}
	slices.SortFunc(found, func(a, b installation) int { return cmp.Compare(a.namespace, b.namespace) })
	return found, nil
}

// checkInstallations refuses installations that liqoctl did not create or that are in another namespace. It returns the name of this cluster, if it has one.
func (p *Prepared) checkInstallations(ctx context.Context) (name string, err error) {
	all, err := installed(ctx, p.client)
	if err != nil {
		return "", err
	}
	for _, one := range all {
		switch {
		case one.namespace != p.options.Namespace:
			return "", fmt.Errorf("this cluster already has Liqo in namespace %s, and there can be only one; add -n %s to upgrade it, or uninstall it first",
				one.namespace, one.namespace)
		case one.release == "":
			return "", fmt.Errorf("namespace %s has a Liqo that was installed without Helm; upgrade or remove it the way it was installed", one.namespace)
		case one.release != Release:
			return "", fmt.Errorf("namespace %s has Liqo as Helm release %q, but liqoctl manages only the release %q; upgrade it with Helm, or uninstall it first",
				one.namespace, one.release, Release)
		}
		name = one.clusterName
	}
	return name, nil
}

// lastRelease returns the newest record in Helm's history; nil if there is none.
func lastRelease(helm *action.Configuration) (*release.Release, error) {
	found, err := helm.Releases.Last(Release)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read release %s: %w", Release, err)
	}
	return known(found)
}

func known(found helmrelease.Releaser) (*release.Release, error) {
	last, ok := found.(*release.Release)
	if !ok || last.Chart == nil || last.Chart.Metadata == nil || last.Info == nil {
		return nil, fmt.Errorf("this program cannot read the chart in release %s", Release)
	}
	return last, nil
}

// loadLast reads the installed release, and refuses a downgrade.
func (p *Prepared) loadLast() (err error) {
	if p.last, err = lastRelease(p.helm); err != nil || p.last == nil {
		return err
	}
	if s := p.last.Info.Status; s == common.StatusUninstalling || s == common.StatusUninstalled {
		return fmt.Errorf("the uninstallation in namespace %s is incomplete; run `liqoctl uninstall -n %s` first", p.options.Namespace, p.options.Namespace)
	}
	if p.options.AllowDowngrade {
		return nil
	}
	return checkVersion(p.last.Chart.Metadata.AppVersion, p.chart.Metadata.AppVersion)
}

// checkVersion refuses a downgrade: an older version may not understand the objects of a newer one.
func checkVersion(have, want string) error {
	old, errOld := version.ParseSemantic(have)
	now, errNew := version.ParseSemantic(want)
	if errOld != nil || errNew != nil || !now.LessThan(old) {
		return nil // builds from source have no semantic version; the user is responsible
	}
	return fmt.Errorf("version %s is installed, and this is %s, which is older and may not understand the objects of the newer one; use liqoctl of version "+
		"%s or later, or add --allow-downgrade", have, want, have)
}

// lastValues is a copy of the values of the last installation.
func (p *Prepared) lastValues() (map[string]any, error) {
	if p.last == nil || p.options.ResetValues {
		return map[string]any{}, nil
	}
	values, err := plainValues(p.last.Config)
	unstructured.RemoveNestedField(values, "crds", "upgrade") // see recorded
	return values, err
}

// recorded returns a copy of the values for Helm, which changes its input. The copy disables the chart's job for resource
// definitions, because liqoctl applies them first; an installation of the written values without liqoctl needs that job.
func (p *Prepared) recorded() (map[string]any, error) {
	values, err := plainValues(p.Values)
	if err != nil {
		return nil, err
	}
	if _, configured, _ := unstructured.NestedFieldNoCopy(values, "crds", "upgrade"); !configured {
		err = unstructured.SetNestedField(values, false, "crds", "upgrade")
	}
	return values, err
}

// unlock takes over the release of a program that died. Helm marks a release as pending while it works on it, and refuses another operation on it.
func (p *Prepared) unlock() error {
	if p.last == nil || !p.last.Info.Status.IsPending() {
		return nil
	}
	since := p.last.Info.LastDeployed
	limit := p.options.Timeout
	if theirs, err := time.ParseDuration(p.last.Labels[labels.InstallTimeout]); err == nil {
		limit = max(limit, theirs)
	}
	if age := time.Since(since); age < limit || p.options.DryRun {
		return fmt.Errorf("another installation of Liqo has been running since %s, or was killed; wait for it, or run `liqoctl uninstall`; %s after its "+
			"start, the time that it or this command has, this command takes it over",
			since.UTC().Format(time.RFC3339), limit)
	}
	p.last.SetStatus(common.StatusFailed, "interrupted")
	if err := p.helm.Releases.Update(p.last); err != nil {
		return fmt.Errorf("take over the interrupted installation: %w", err)
	}
	return nil
}

// helmRun installs or upgrades the release with Helm.
func (p *Prepared) helmRun(ctx context.Context, how action.DryRunStrategy) (*release.Release, error) {
	values, err := p.recorded()
	if err != nil {
		return nil, err
	}
	ours := map[string]string{labels.InstallRun: p.run, labels.InstallTimeout: p.options.Timeout.String()}
	var done helmrelease.Releaser
	if p.last == nil {
		helm := action.NewInstall(p.helm)
		helm.ReleaseName, helm.Namespace, helm.DryRunStrategy, helm.Labels = Release, p.options.Namespace, how, ours
		helm.SkipCRDs, helm.Timeout, helm.WaitStrategy = true, p.options.Timeout, kube.StatusWatcherStrategy
		done, err = helm.RunWithContext(ctx, p.chart, values)
	} else {
		helm := action.NewUpgrade(p.helm)
		helm.Namespace, helm.DryRunStrategy, helm.Labels = p.options.Namespace, how, ours
		helm.SkipCRDs, helm.Timeout, helm.WaitStrategy = true, p.options.Timeout, kube.StatusWatcherStrategy
		helm.ResetValues, helm.MaxHistory, helm.ForceConflicts = true, 5, true
		done, err = helm.RunWithContext(ctx, Release, p.chart, values)
	}
	if err != nil {
		return nil, err
	}
	return known(done)
}

// inPlace reports whether the last installation had the same values and all of its objects are still in place.
func (p *Prepared) inPlace(ctx context.Context, rendered *release.Release) (bool, error) {
	last := p.last
	if last == nil || last.Info.Status != common.StatusDeployed || last.Chart.Metadata.Version != rendered.Chart.Metadata.Version ||
		last.Manifest != rendered.Manifest || !slices.EqualFunc(last.Hooks, rendered.Hooks, func(a, b *release.Hook) bool { return a.Manifest == b.Manifest }) {
		return false, nil
	}
	before, err := plainValues(last.Config)
	if err != nil {
		return false, err
	}
	if now, err := p.recorded(); err != nil || !reflect.DeepEqual(before, now) {
		return false, err
	}
	objects, err := p.helm.KubeClient.Build(bytes.NewBufferString(rendered.Manifest), false)
	if err != nil {
		return false, fmt.Errorf("read the installed objects: %w", err)
	}
	for _, object := range objects {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		want, ok := object.Object.(*unstructured.Unstructured)
		if !ok {
			return false, nil
		}
		want = want.DeepCopy()
		if err := object.Get(); apierrors.IsNotFound(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("read %s %s: %w", want.GetKind(), want.GetName(), err)
		}
		if have, ok := object.Object.(*unstructured.Unstructured); !ok || !holds(have.Object, want.Object) {
			return false, nil
		}
	}
	return true, nil
}

// holds reports whether an object has all desired fields. API servers add defaults and omit empty fields.
func holds(have, want any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case map[string]any:
		live, ok := have.(map[string]any)
		if !ok && have != nil {
			return false
		}
		for key, value := range want {
			if !holds(live[key], value) {
				return false
			}
		}
		return true
	case []any:
		live, _ := have.([]any)
		return slices.EqualFunc(live, want, holds)
	}
	return reflect.DeepEqual(have, want) || have == nil && reflect.ValueOf(want).IsZero()
}

// historyTime bounds how long the history of the release is read again: an upgrade may have failed because the API server restarts.
const historyTime = 30 * time.Second

// revisions returns the newest revision that worked, nil if none ever did; and the newest that another run has made since this one began, nil if none
// has. Only an answer of the API server proves that there is none: after any other error, the caller must not uninstall, because Liqo may be in use.
func (p *Prepared) revisions(ctx context.Context) (working, other *release.Release, _ error) {
	ctx, cancel := context.WithTimeout(ctx, historyTime)
	defer cancel()
	var history []helmrelease.Releaser
	var last error
	if err := wait.PollUntilContextCancel(ctx, time.Second, true, func(context.Context) (bool, error) {
		history, last = p.helm.Releases.History(Release)
		return last == nil || errors.Is(last, driver.ErrReleaseNotFound), nil
	}); err != nil {
		return nil, nil, fmt.Errorf("read the history of release %s: %w", Release, cmp.Or(last, err))
	}
	all := make([]*release.Release, len(history))
	for i, one := range history {
		var err error
		if all[i], err = known(one); err != nil {
			return nil, nil, err
		}
	}
	newest := func(suits func(*release.Release) bool) (found *release.Release) {
		for _, one := range all {
			if suits(one) && (found == nil || one.Version > found.Version) {
				found = one
			}
		}
		return found
	}
	other = newest(func(one *release.Release) bool {
		return (p.last == nil || one.Version > p.last.Version) && one.Labels[labels.InstallRun] != p.run
	})
	// Helm records the old revision as superseded before the new one as deployed. If it fails in between, no revision is deployed.
	for _, status := range []common.Status{common.StatusDeployed, common.StatusSuperseded} {
		if working = newest(func(one *release.Release) bool { return one.Info.Status == status }); working != nil {
			break
		}
	}
	return working, other, nil
}

// undoUpgrade restores a revision that worked. It skips hooks: they end peerings.
func (p *Prepared) undoUpgrade(working *release.Release) error {
	helm := action.NewRollback(p.helm)
	// By default, Helm restores the last but one revision, which may have failed as well, or be older than the one in use.
	helm.Version = working.Version
	helm.DisableHooks, helm.ForceConflicts, helm.MaxHistory, helm.WaitStrategy = true, true, 5, kube.HookOnlyStrategy
	return helm.Run(Release)
}

// undoInstallation removes what a first installation created. It skips hooks: they end peerings, and Liqo never worked here.
func (p *Prepared) undoInstallation(ctx context.Context, created *corev1.Namespace, progress liqoaction.Progress) error {
	helm := action.NewUninstall(p.helm)
	helm.DisableHooks, helm.IgnoreNotFound, helm.WaitStrategy, helm.Timeout = true, true, kube.HookOnlyStrategy, p.options.Timeout
	if _, err := helm.Run(Release); err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return err
	}
	if err := purge.Storage(ctx, p.client, progress); err != nil {
		return err
	}
	if created == nil {
		return nil
	}
	if err := p.client.Delete(ctx, created, client.Preconditions{UID: &created.UID}); client.IgnoreNotFound(err) != nil {
		return err
	}
	// An immediate retry must not find the terminating namespace.
	err := await.Follow(ctx, p.client, &corev1.NamespaceList{}, func(all []corev1.Namespace) (bool, error) {
		return !slices.ContainsFunc(all, func(one corev1.Namespace) bool { return one.UID == created.UID }), nil
	}, client.MatchingFields{"metadata.name": created.Name})
	if err != nil {
		return fmt.Errorf("wait until namespace %s is gone: %w", created.Name, err)
	}
	return nil
}

var templateNoise = regexp.MustCompile(`(?s)^.*execution error at \([^)]*\): `)

// plain removes the position in a template from an error: users did not write the template.
func plain(err error) error {
	if text := templateNoise.ReplaceAllString(err.Error(), ""); text != err.Error() {
		return errors.New(strings.TrimSpace(text))
	}
	return err
}

// InstalledVersion returns the version of the release in a namespace.
func InstalledVersion(ctx context.Context, cluster Cluster, namespace string) (string, error) {
	helm, err := cluster.helm(namespace)
	if err != nil {
		return "", err
	}
	last, err := lastRelease(helm)
	if err != nil {
		return "", err
	}
	if last == nil {
		return "", notInstalled(ctx, cluster, namespace)
	}
	return last.Chart.Metadata.AppVersion, nil
}

// notInstalled is the error for a missing release: Liqo is not installed, or elsewhere, or not by liqoctl.
func notInstalled(ctx context.Context, cluster Cluster, namespace string) error {
	c, err := cluster.client()
	if err != nil {
		return err
	}
	all, err := installed(ctx, c)
	if err != nil {
		return err
	}
	switch {
	case len(all) == 0:
		return ErrNotInstalled
	case all[0].namespace != namespace:
		return fmt.Errorf("another namespace holds Liqo: %s, not %s; add -n %s", all[0].namespace, namespace, all[0].namespace)
	}
	return fmt.Errorf("the Liqo in namespace %s was not installed by liqoctl: it has no Helm release %q; upgrade or remove it the way it was installed",
		namespace, Release)
}
