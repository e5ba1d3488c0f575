// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"

	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	embedded "liqo.io/liqo/deployments/liqo"
	"liqo.io/liqo/internal/action/install/clusters"
)

// sharingPercentage is the default of liqoctl.
const sharingPercentage = 90

// insecureKubelets is the flag of the metric agent that disables the verification of kubelets' certificates.
const insecureKubelets = "--kubelet-insecure-tls"

// loadChart reads the chart from a folder or an archive, or without a path the chart that the program embeds.
func loadChart(path string) (*chart.Chart, error) {
	if path != "" {
		loaded, err := loader.Load(path)
		if err != nil {
			return nil, fmt.Errorf("--local-chart-path %s: %w", path, err)
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

// checkWantedVersion refuses a version that the embedded chart does not have.
func checkWantedVersion(o Options, have string) error {
	if o.Version == "" || o.ChartPath != "" || strings.TrimPrefix(o.Version, "v") == strings.TrimPrefix(have, "v") {
		return nil
	}
	return fmt.Errorf("--version %s: this program installs version %s, whose chart it embeds; use liqoctl of version %s, or the chart of that version with "+
		"--local-chart-path",
		o.Version, have, o.Version)
}

// definitions returns the resource definitions of the chart.
func definitions(ch *chart.Chart) (all []*unstructured.Unstructured, err error) {
	for _, file := range ch.CRDObjects() {
		definition := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(file.File.Data, &definition.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		all = append(all, definition)
	}
	return all, nil
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

// inherit fills the overrides that the user left empty with the values of the previous installation.
func inherit(o clusters.Overrides, before map[string]any) clusters.Overrides {
	keep := func(value *string, path ...string) {
		if *value == "" {
			*value, _, _ = unstructured.NestedString(before, path...)
		}
	}
	keep(&o.PodCIDR, "networkManager", "config", "podCIDR")
	keep(&o.ServiceCIDR, "networkManager", "config", "serviceCIDR")
	if o.ReservedSubnets == nil {
		o.ReservedSubnets, _, _ = unstructured.NestedStringSlice(before, "networkManager", "config", "reservedSubnets")
	}
	keep(&o.ClusterName, "discovery", "config", "clusterName")
	if o.APIServer == "" {
		keep(&o.APIServer, "apiServer", "address")
		o.AnyAPIServer = o.AnyAPIServer || o.APIServer != "" // it was checked at the previous installation
	}
	return o
}

// keepSharing takes over a percentage that was changed in the cluster: otherwise this installation would change it back.
func (p *Prepared) keepSharing(ctx context.Context, before map[string]any) error {
	if p.last == nil || p.options.ResetValues {
		return nil
	}
	var live corev1.ConfigMap
	err := p.client.Get(ctx, client.ObjectKey{Namespace: p.options.Namespace, Name: "liqo-resource-sharing"}, &live)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the percentage of shared resources: %w", err)
	}
	if percentage, err := strconv.Atoi(live.Data["percentage"]); err == nil && percentage >= 0 && percentage <= 100 {
		return unstructured.SetNestedField(before, float64(percentage), "controllerManager", "config", "resourceSharingPercentage")
	}
	return nil
}

// name decides the name of the cluster. It never changes, because the peers know the cluster by that name.
func (p *Prepared) name(have, want string) error {
	switch {
	case have != "" && want != "" && have != want:
		return fmt.Errorf("this cluster was installed with the name %q, and its peers know it by that name, so it cannot become %q; leave out --cluster-name, "+
			"or uninstall Liqo first", have, want)
	case have == "" && want == "":
		have = randomName()
		p.GeneratedName = have
	case have == "":
		have = want
	}
	p.options.Overrides.ClusterName = have
	return nil
}

// values returns the values of the chart, from the plan and the other options.
func (p *Prepared) values(before map[string]any) map[string]any {
	o := p.options
	manager := map[string]any{}
	_, configured, _ := unstructured.NestedFieldNoCopy(before, "controllerManager", "config", "resourceSharingPercentage")
	switch {
	case o.SharingPercentage != nil:
		manager["config"] = map[string]any{"resourceSharingPercentage": *o.SharingPercentage}
	case !configured:
		manager["config"] = map[string]any{"resourceSharingPercentage": sharingPercentage}
	}
	gateway := map[string]any{}
	switch {
	case o.HighAvailability == nil:
	case *o.HighAvailability:
		manager["replicas"], gateway["replicas"] = 2, 2
	default:
		unstructured.RemoveNestedField(before, "controllerManager", "replicas")
		unstructured.RemoveNestedField(before, "gateway", "replicas")
	}
	clusterLabels := map[string]any{}
	if o.Overrides.Labels != nil { // they replace all earlier labels
		unstructured.RemoveNestedField(before, "discovery", "config", "clusterLabels")
		for key, value := range o.Overrides.Labels {
			clusterLabels[key] = value
		}
	}
	for key, value := range p.Plan.Labels {
		clusterLabels[key] = value
	}
	networks := map[string]any{"podCIDR": p.Plan.PodCIDR, "serviceCIDR": p.Plan.ServiceCIDR}
	if o.Overrides.ReservedSubnets != nil {
		networks["reservedSubnets"] = o.Overrides.ReservedSubnets
	}
	all := map[string]any{
		"controllerManager": manager,
		"discovery":         map[string]any{"config": map[string]any{"clusterName": o.Overrides.ClusterName, "clusterLabels": clusterLabels}},
		"apiServer":         map[string]any{"address": p.Plan.Published()},
		"networkManager":    map[string]any{"config": networks},
	}
	for component, its := range map[string]map[string]any{"auth": {}, "gateway": gateway} {
		// A type that was set for one of them stays that one's own, until --service-type sets both.
		_, has, _ := unstructured.NestedFieldNoCopy(before, component, "service", "type")
		if p.Plan.ServiceType != "" && (!has || o.Overrides.ServiceType != "") {
			its["service"] = map[string]any{"type": p.Plan.ServiceType}
			all[component] = its
		}
	}
	if p.Plan.WatchPods {
		gateway["config"] = map[string]any{"watchPods": true}
	}
	if len(gateway) > 0 {
		all["gateway"] = gateway
	}
	merge(all, p.metrics(before))
	if _, configured, _ := unstructured.NestedFieldNoCopy(before, "metricAgent", "pod", "extraArgs"); p.Plan.SelfSignedKubelets && !configured {
		all["metricAgent"] = map[string]any{"pod": map[string]any{"extraArgs": []any{insecureKubelets}}}
	}
	if o.Version != "" && o.ChartPath != "" && o.Version != p.chart.Metadata.AppVersion {
		all["tag"] = o.Version
	}
	return all
}

// metrics returns the values by which every component of the chart that can serve metrics does so, or takes back from before what made them.
func (p *Prepared) metrics(before map[string]any) map[string]any {
	all := map[string]any{}
	if p.options.Metrics == nil {
		return all
	}
	for component := range p.chart.Values {
		for _, monitor := range []string{"serviceMonitor", "podMonitor"} {
			switch _, has, _ := unstructured.NestedFieldNoCopy(p.chart.Values, component, "metrics", monitor, "enabled"); {
			case !has:
			case *p.options.Metrics:
				all[component] = map[string]any{"metrics": map[string]any{"enabled": true, monitor: map[string]any{"enabled": !p.Unmonitored}}}
			default:
				unstructured.RemoveNestedField(before, component, "metrics", "enabled")
				unstructured.RemoveNestedField(before, component, "metrics", monitor, "enabled")
			}
		}
	}
	return all
}

// UnverifiedKubelets reports whether the metric agent will not verify the certificates of kubelets.
func (p *Prepared) UnverifiedKubelets() bool {
	enabled, set, _ := unstructured.NestedBool(p.Values, "metricAgent", "enable")
	args, _, _ := unstructured.NestedStringSlice(p.Values, "metricAgent", "pod", "extraArgs")
	return (enabled || !set) && slices.Contains(args, insecureKubelets)
}

// merge overwrites base with the values of over.
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

// plainValues is a copy with the number and list types of JSON, which the record of a release also has.
func plainValues(values map[string]any) (map[string]any, error) {
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	copied := map[string]any{}
	return copied, json.Unmarshal(text, &copied)
}

var schemaLine = regexp.MustCompile(`(?m)^\s*- at '/?([^']*)': (.*)$`)

// checkValues validates the values against the chart's schema, so that a typing error is not installed.
func (p *Prepared) checkValues() (err error) {
	if p.Values, err = plainValues(p.Values); err != nil {
		return fmt.Errorf("values of the chart: %w", err)
	}
	copied, err := plainValues(p.Values)
	if err != nil {
		return err
	}
	all, err := chartutil.CoalesceValues(p.chart, copied)
	if err != nil {
		return fmt.Errorf("values of the chart: %w", err)
	}
	if err := chartutil.ValidateAgainstSchema(p.chart, all); err != nil {
		return errors.New("the chart refuses these values: " + schemaErrors(err.Error()) +
			"; see --set, and docs/reference/values.md for the existing values; --reset-values forgets those of earlier installations")
	}
	return nil
}

// schemaErrors shortens the errors of the validator to one line.
func schemaErrors(text string) string {
	var problems []string
	for _, found := range schemaLine.FindAllStringSubmatch(text, -1) {
		path := strings.ReplaceAll(found[1], "/", ".")
		if path == "" {
			path = "at the top level"
		}
		problems = append(problems, path+": "+found[2])
	}
	if len(problems) == 0 {
		return strings.Join(strings.Fields(text), " ")
	}
	return strings.Join(problems, "; ")
}

// notes returns the notes of the rendered chart: values that have no effect, and what values leave open.
func notes(text string) (found []string) {
	for line := range strings.Lines(text) {
		if note, is := strings.CutPrefix(line, "NOTE: "); is {
			found = append(found, strings.TrimSpace(note))
		}
	}
	return found
}

// randomName is two words, like the names of containers: people can distinguish such names.
func randomName() string {
	first := strings.Fields("amber autumn bold brisk calm clear cosy dawn deep early fair gentle golden green happy jolly keen lively lucky mild misty " +
		"noble quiet rapid silent silver snowy solar still sunny swift warm wild young")
	second := strings.Fields("bay beach brook canyon cliff cloud coast creek delta dune field fjord forest garden glade grove harbour hill island lagoon " +
		"lake meadow mesa moor oasis ocean orchard peak plain pond reef ridge river shore valley")
	return first[rand.IntN(len(first))] + "-" + second[rand.IntN(len(second))]
}
