// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/install/clusters"
	"liqo.io/liqo/internal/action/inuse"
	"liqo.io/liqo/internal/kube/kubetest"
)

// recorder is a Progress that keeps its lines.
type recorder struct {
	lines []string
	// started, if set, is called with each step.
	started func(text string)
}

func (r *recorder) Start(text string) {
	r.lines = append(r.lines, "... "+text)
	if r.started != nil {
		r.started(text)
	}
}

func (r *recorder) Done(text string) { r.lines = append(r.lines, "INFO "+text) }
func (r *recorder) Info(text string) { r.lines = append(r.lines, "INFO "+text) }
func (r *recorder) Warn(text string) { r.lines = append(r.lines, "WARN "+text) }
func (r *recorder) Stop()            {}
func (r *recorder) text() string     { return strings.Join(r.lines, "\n") }

// env is a cluster without nodes, so pods never run.
type env struct {
	t       *testing.T
	cluster Cluster
	client  client.WithWatch
}

func newEnv(t *testing.T) *env {
	t.Helper()
	config := kubetest.Fresh(t)
	content := clientcmdapi.NewConfig()
	content.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	content.AuthInfos["c"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	content.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	content.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*content, file); err != nil {
		t.Fatal(err)
	}
	getter := genericclioptions.NewConfigFlags(true)
	cache := t.TempDir()
	getter.KubeConfig, getter.CacheDir = &file, &cache
	cluster := Cluster{Getter: getter, Config: config}
	c, err := cluster.client()
	if err != nil {
		t.Fatal(err)
	}
	finalizeNamespaces(t, config, c)
	// An API server is ready a moment before it has created its own objects.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := await.Follow(ctx, c, &corev1.ServiceList{}, func(all []corev1.Service) (bool, error) { return len(all) > 0, nil }); err != nil {
		t.Fatal(err)
	}
	return &env{t, cluster, c}
}

// finalizeNamespaces does the work of the missing controller manager for empty namespaces.
func finalizeNamespaces(t *testing.T, config *rest.Config, c client.WithWatch) {
	t.Helper()
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := c.Watch(t.Context(), &corev1.NamespaceList{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for event := range watcher.ResultChan() {
			if ns, ok := event.Object.(*corev1.Namespace); ok && ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) > 0 {
				ns.Spec.Finalizers = nil
				_, _ = api.CoreV1().Namespaces().Finalize(context.Background(), ns, metav1.UpdateOptions{})
			}
		}
	}()
}

// expiring is a context whose deadline is an event instead of a time.
type expiring struct {
	context.Context
	expired chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.expired }

func (e expiring) Err() error {
	select {
	case <-e.expired:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// installUntilWait installs, and lets the time run out when the wait for pods begins: the pods of this cluster never run.
func (e *env) installUntilWait(o Options) error {
	e.t.Helper()
	prepared, err := Prepare(e.t.Context(), e.cluster, o)
	if err != nil {
		return err
	}
	ctx := expiring{e.t.Context(), make(chan struct{})}
	_, err = prepared.Apply(ctx, &recorder{started: func(text string) {
		if text == waitingForPods {
			close(ctx.expired)
		}
	}})
	return err
}

// waitLimit is a guard against hanging: far more than any step takes.
const waitLimit = 5 * time.Minute

// options set the networks, which the cluster of the test does not publish.
func options() Options {
	return Options{
		Namespace: "liqo", Timeout: waitLimit,
		Overrides: clusters.Overrides{
			ClusterName: "rome", PodCIDR: "10.200.0.0/16", ServiceCIDR: "10.0.0.0/24", APIServer: "https://192.0.2.1:6443", AnyAPIServer: true,
		},
	}
}

func (e *env) install(o Options) (Outcome, error) {
	e.t.Helper()
	prepared, err := Prepare(e.t.Context(), e.cluster, o)
	if err != nil {
		return Outcome{}, err
	}
	return prepared.Apply(e.t.Context(), &recorder{})
}

// revisions of the release and their states.
func (e *env) revisions() (found []string) {
	e.t.Helper()
	var all corev1.SecretList
	if err := e.client.List(e.t.Context(), &all, client.InNamespace("liqo"), client.MatchingLabels{"owner": "helm"}); err != nil {
		e.t.Fatal(err)
	}
	for i := range all.Items {
		found = append(found, all.Items[i].Labels["version"]+" "+all.Items[i].Labels["status"])
	}
	slices.Sort(found)
	return found
}

// versions of all objects that an installation could change, without Helm's record.
func (e *env) versions() map[string]string {
	e.t.Helper()
	found := map[string]string{}
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "NamespaceList"},
		{Version: "v1", Kind: "ConfigMapList"},
		{Version: "v1", Kind: "SecretList"},
		{Version: "v1", Kind: "ServiceList"},
		{Version: "v1", Kind: "ServiceAccountList"},
		{Group: "apps", Version: "v1", Kind: "DeploymentList"},
		{Group: "apps", Version: "v1", Kind: "DaemonSetList"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleList"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBindingList"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleList"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBindingList"},
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfigurationList"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfigurationList"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyList"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBindingList"},
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIServiceList"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "FlowSchemaList"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "PriorityLevelConfigurationList"},
		{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClassList"},
	} {
		var all metav1.PartialObjectMetadataList
		all.SetGroupVersionKind(kind)
		if err := e.client.List(e.t.Context(), &all); err != nil {
			e.t.Fatal(err)
		}
		for i := range all.Items {
			one := &all.Items[i]
			// The API server itself updates these objects.
			ours := one.Labels[labels.AppPartOf] == labels.PartOf
			if one.Labels["owner"] == "helm" || !ours && strings.HasPrefix(one.Namespace, "kube-") || one.Labels["kubernetes.io/bootstrapping"] != "" ||
				one.Labels["kube-aggregator.kubernetes.io/automanaged"] != "" || !ours && strings.HasPrefix(kind.Group, "flowcontrol.") {
				continue
			}
			found[kind.Kind+" "+one.Namespace+"/"+one.Name] = one.ResourceVersion
		}
	}
	return found
}

func differ(before, after map[string]string) (lines []string) {
	for name, version := range after {
		switch old, ok := before[name]; {
		case !ok:
			lines = append(lines, "+ "+name)
		case old != version:
			lines = append(lines, "~ "+name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			lines = append(lines, "- "+name)
		}
	}
	slices.Sort(lines)
	return lines
}

// TestLife runs all commands of one installation in one cluster, in order.
func TestLife(t *testing.T) {
	e := newEnv(t)
	fresh := e.versions()
	for _, step := range []struct {
		name string
		run  func(*testing.T, *env, map[string]string)
	}{
		{"refused before anything is changed", refused},
		{"nothing to uninstall", nothingInstalled},
		{"first", first},
		{"again", again},
		{"repaired", repaired},
		{"types of Services", serviceTypes},
		{"changed", changed},
		{"failed upgrade", failedUpgrade},
		{"older and elsewhere", olderAndElsewhere},
		{"interrupted", interrupted},
		{"in use", inUseRefused},
		{"uninstalled", uninstalled},
		{"purged", purged},
		{"failed installation", failedInstallation},
		{"unmanaged objects", unmanagedStay},
	} {
		if !t.Run(step.name, func(t *testing.T) { e.t = t; step.run(t, e, fresh) }) {
			t.FailNow()
		}
	}
}

func refused(t *testing.T, e *env, fresh map[string]string) {
	with := func(change func(*Options)) Options { o := options(); change(&o); return o }
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"unknown value", with(func(o *Options) { o.Set = []string{"auth.colour=red"} }), `auth: additional properties 'colour' not allowed`},
		{
			"value within a documented one without effect", with(func(o *Options) { o.Set = []string{"telemetry.surprise=true"} }),
			"telemetry: additional properties 'surprise' not allowed",
		},
		{
			"wrong kind of value", with(func(o *Options) { o.Set = []string{"controllerManager.replicas=many"} }),
			"controllerManager.replicas: got string, want integer",
		},
		{"no value", with(func(o *Options) { o.Set = []string{"auth"} }), "want key=value"},
		{"version", with(func(o *Options) { o.Version = "v7.7.7" }), "this program installs version"},
		{"chart", with(func(o *Options) { o.ChartPath, o.Version = "/nowhere", "v1" }), "--local-chart-path /nowhere"},
		{"CIDR", with(func(o *Options) { o.Overrides.PodCIDR = "10.200.0.0" }), "--pod-cidr 10.200.0.0"},
		{"service outside", with(func(o *Options) { o.Overrides.ServiceCIDR = "10.1.0.0/24" }), "Service default/kubernetes"},
		{"cluster ID", with(func(o *Options) { o.Set = []string{"discovery.config.clusterIDOverride=x"} }), "discovery.config.clusterIDOverride"},
	} {
		_, err := e.install(c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	noted(t, e)
	short := options()
	short.Timeout = 1
	if _, err := Prepare(t.Context(), e.cluster, short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no time to prepare: %v", err)
	}
	prepared, err := Prepare(t.Context(), e.cluster, options())
	if err != nil {
		t.Fatal(err)
	}
	prepared.options.Timeout = 1
	if _, err := prepared.Apply(t.Context(), &recorder{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no time to apply: %v", err)
	}
	if lines := differ(fresh, e.versions()); len(lines) > 0 {
		t.Errorf("changed:\n%s", strings.Join(lines, "\n"))
	}
	away := *e
	away.cluster.Config = &rest.Config{Host: "https://127.0.0.1:1"}
	if _, err := away.install(options()); err == nil || !strings.Contains(err.Error(), "kubectl cluster-info") {
		t.Errorf("unreachable: %v", err)
	}
}

// noted: documented values without effect are accepted, each reason gets one warning, and a dry run changes nothing else.
func noted(t *testing.T, e *env) {
	t.Helper()
	for set, want := range map[string][]string{
		"": nil,
		"telemetry.enable=false,nameOverride=,discovery.config.enableDiscovery=false": nil,
		"telemetry.enable=true,awsConfig.region=south,awsConfig.secretAccessKey=hidden": {
			"WARN telemetry.enable has no effect: no telemetry is sent",
			"WARN awsConfig.region, awsConfig.secretAccessKey have no effect: peers authenticate with keys and tokens of their own, on every cloud",
		},
	} {
		o := options()
		o.DryRun = true
		if set != "" {
			o.Set = []string{set}
		}
		prepared, err := Prepare(t.Context(), e.cluster, o)
		if err != nil {
			t.Fatal(err)
		}
		var progress recorder
		if _, err := prepared.Apply(t.Context(), &progress); err != nil {
			t.Errorf("dry run with %s: %v", set, err)
		}
		warnings := slices.DeleteFunc(progress.lines, func(line string) bool { return !strings.HasPrefix(line, "WARN ") })
		if !slices.Equal(warnings, want) {
			t.Errorf("%s: %q, want %q", set, warnings, want)
		}
	}
}

func nothingInstalled(t *testing.T, e *env, _ map[string]string) {
	for _, purge := range []bool{false, true} {
		if err := Uninstall(
			t.Context(), e.cluster, UninstallOptions{Namespace: "liqo", Purge: purge, Timeout: waitLimit}, &recorder{},
		); !errors.Is(err, ErrNotInstalled) {
			t.Errorf("purge %t: %v", purge, err)
		}
	}
	if _, err := InstalledVersion(t.Context(), e.cluster, "liqo"); !errors.Is(err, ErrNotInstalled) {
		t.Error(err)
	}
}

func first(t *testing.T, e *env, _ map[string]string) {
	start := time.Now()
	out, err := e.install(options())
	if err != nil || out.Unchanged {
		t.Fatal(out, err)
	}
	t.Logf("installed in %s", time.Since(start).Round(time.Millisecond))
	var identity corev1.ConfigMap
	if err := e.client.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "liqo-clusterid-configmap"}, &identity); err != nil {
		t.Fatal(err)
	}
	if identity.Data["CLUSTER_NAME"] != "rome" {
		t.Errorf("identity %v", identity.Data)
	}
	var sharing corev1.ConfigMap
	if err := e.client.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "liqo-resource-sharing"}, &sharing); err != nil ||
		sharing.Data["percentage"] != "90" {
		t.Errorf("sharing %v %v", sharing.Data, err)
	}
	if err := e.client.List(t.Context(), &discoveryv1alpha1.ForeignClusterList{}); err != nil {
		t.Errorf("resource definitions: %v", err)
	}
	version, err := InstalledVersion(t.Context(), e.cluster, "liqo")
	if err != nil || version != out.Version {
		t.Errorf("version %q, want %q: %v", version, out.Version, err)
	}
	if found := e.revisions(); !slices.Equal(found, []string{"1 deployed"}) {
		t.Errorf("revisions %v", found)
	}
}

// again: the same command changes nothing, and neither does one with fewer flags.
func again(t *testing.T, e *env, _ map[string]string) {
	for _, overrides := range []clusters.Overrides{options().Overrides, {}} {
		before := e.versions()
		o := options()
		o.Overrides = overrides
		out, err := e.install(o)
		if err != nil || !out.Unchanged {
			t.Fatal(out, err)
		}
		if lines := differ(before, e.versions()); len(lines) > 0 {
			t.Errorf("changed:\n%s", strings.Join(lines, "\n"))
		}
	}
	if found := e.revisions(); !slices.Equal(found, []string{"1 deployed"}) {
		t.Errorf("revisions %v", found)
	}
}

// repaired: an installation restores deleted and changed objects.
func repaired(t *testing.T, e *env, _ map[string]string) {
	key := client.ObjectKey{Namespace: "liqo", Name: "liqo-auth"}
	var service corev1.Service
	if err := e.client.Get(t.Context(), key, &service); err != nil {
		t.Fatal(err)
	}
	if err := e.client.Delete(t.Context(), &service); err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := e.client.Get(t.Context(), key, &deployment); err != nil {
		t.Fatal(err)
	}
	none := int32(0)
	deployment.Spec.Replicas = &none
	if err := e.client.Update(t.Context(), &deployment); err != nil {
		t.Fatal(err)
	}
	if out, err := e.install(options()); err != nil || out.Unchanged {
		t.Fatal(out, err)
	}
	if err := e.client.Get(t.Context(), key, &service); err != nil {
		t.Error(err)
	}
	if err := e.client.Get(t.Context(), key, &deployment); err != nil || *deployment.Spec.Replicas != 1 {
		t.Errorf("%d replicas, %v", *deployment.Spec.Replicas, err)
	}
	if out, err := e.install(options()); err != nil || !out.Unchanged {
		t.Error(out, err)
	}
}

// serviceTypes: a type that was set for the authentication service only never becomes that of the gateways, which would take the tunnels down.
func serviceTypes(t *testing.T, e *env, _ map[string]string) {
	o := options()
	o.Set = []string{"auth.service.type=ClusterIP"}
	if out, err := e.install(o); err != nil || out.Unchanged {
		t.Fatal(out, err)
	}
	if out, err := e.install(options()); err != nil || !out.Unchanged {
		t.Errorf("installed again, without a flag: %+v, %v", out, err)
	}
	for name, want := range map[string]corev1.ServiceType{"liqo-auth": corev1.ServiceTypeClusterIP, "liqo-gateway": corev1.ServiceTypeLoadBalancer} {
		var service corev1.Service
		if err := e.client.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: name}, &service); err != nil || service.Spec.Type != want {
			t.Errorf("%s has type %s, want %s; %v", name, service.Spec.Type, want, err)
		}
	}
}

// changed: given values change, all others stay.
func changed(t *testing.T, e *env, _ map[string]string) {
	percent := 40
	o := options()
	o.Overrides = clusters.Overrides{Labels: map[string]string{"zone": "a"}, ServiceType: "NodePort"}
	o.SharingPercentage, o.HighAvailability, o.Set, o.Metrics = &percent, new(true), []string{"auth.service.port=8443"}, new(true)
	if out, err := e.install(o); err != nil || out.Unchanged {
		t.Fatal(out, err)
	}
	o = options()
	o.Overrides = clusters.Overrides{Labels: map[string]string{"zone": "b"}}
	prepared, err := Prepare(t.Context(), e.cluster, o)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"controllerManager.config.resourceSharingPercentage": 40.0, "controllerManager.replicas": 2.0, "auth.service.port": 8443.0, "auth.service.type": "NodePort",
		"gateway.replicas": 2.0, "gateway.service.type": "NodePort", "gateway.metrics.enabled": true, "gateway.metrics.serviceMonitor.enabled": false,
		"virtualKubelet.metrics.enabled": true, "virtualKubelet.metrics.podMonitor.enabled": false,
		"dns.metrics.enabled": true, "dns.metrics.podMonitor.enabled": false,
		"discovery.config.clusterName": "rome", "networkManager.config.podCIDR": "10.200.0.0/16", "apiServer.address": "https://192.0.2.1:6443",
		"discovery.config.clusterLabels": map[string]any{"zone": "b"},
	} {
		if have, _, _ := unstructured.NestedFieldNoCopy(prepared.Values, strings.Split(path, ".")...); fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", path, have, want)
		}
	}
	// What a flag has set, the same flag takes back.
	back := options()
	back.HighAvailability, back.Metrics = new(false), new(false)
	if prepared, err = Prepare(t.Context(), e.cluster, back); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"controllerManager.replicas", "gateway.replicas", "gateway.metrics.enabled", "gateway.metrics.serviceMonitor.enabled",
		"virtualKubelet.metrics.enabled", "virtualKubelet.metrics.podMonitor.enabled", "dns.metrics.enabled", "dns.metrics.podMonitor.enabled",
	} {
		if have, set, _ := unstructured.NestedFieldNoCopy(prepared.Values, strings.Split(path, ".")...); set {
			t.Errorf("%s is %v after the flag was set to false", path, have)
		}
	}
	if _, configured, _ := unstructured.NestedFieldNoCopy(prepared.Values, "crds", "upgrade"); configured {
		t.Error("an installation of these values with Helm would not update the resource definitions")
	}
	// A percentage that was changed in the cluster stays until a flag sets another one.
	sharing := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-resource-sharing"}}
	if err := e.client.Patch(t.Context(), sharing, client.RawPatch(types.MergePatchType, []byte(`{"data":{"percentage":"70"}}`))); err != nil {
		t.Fatal(err)
	}
	if _, err := e.install(options()); err != nil {
		t.Fatal(err)
	}
	if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(sharing), sharing); err != nil || sharing.Data["percentage"] != "70" {
		t.Errorf("percentage %s, %v", sharing.Data["percentage"], err)
	}
	o = options()
	o.ResetValues = true
	if prepared, err = Prepare(t.Context(), e.cluster, o); err != nil {
		t.Fatal(err)
	}
	if have, _, _ := unstructured.NestedFieldNoCopy(prepared.Values, "controllerManager", "config", "resourceSharingPercentage"); fmt.Sprint(have) != "90" {
		t.Errorf("sharing percentage after a reset: %v", have)
	}
	o = options()
	o.Overrides.ClusterName = "milan"
	if _, err := e.install(o); err == nil || !strings.Contains(err.Error(), `"rome"`) {
		t.Errorf("another name: %v", err)
	}
	noted(t, e)
}

// failedUpgrade: an upgrade that does not become ready is undone.
func failedUpgrade(t *testing.T, e *env, _ map[string]string) {
	o := options()
	o.Overrides, o.Wait, o.Set = clusters.Overrides{}, true, []string{"tag=none"}
	err := e.installUntilWait(o)
	if err == nil || !strings.Contains(err.Error(), "not ready after 5m0s") || !strings.Contains(err.Error(), "previous version and values were restored") {
		t.Errorf("%v", err)
	}
	var deployment appsv1.Deployment
	if err := e.client.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "liqo-auth"}, &deployment); err != nil {
		t.Fatal(err)
	}
	if image := deployment.Spec.Template.Spec.Containers[0].Image; strings.HasSuffix(image, ":none") {
		t.Errorf("image %s is still there", image)
	}
}

func olderAndElsewhere(t *testing.T, e *env, _ map[string]string) {
	before := e.versions()
	o := options()
	o.Namespace = "other"
	if _, err := e.install(o); err == nil || !strings.Contains(err.Error(), "-n liqo") {
		t.Errorf("another namespace: %v", err)
	}
	if err := Uninstall(t.Context(), e.cluster, UninstallOptions{Namespace: "other", Purge: true, Timeout: waitLimit}, &recorder{}); err == nil ||
		!strings.Contains(err.Error(), "-n liqo") {
		t.Errorf("uninstall in another namespace: %v", err)
	}
	old := oldChart(t)
	o = options()
	o.ChartPath, o.Version = old, "0.0.1"
	if _, err := e.install(o); err == nil || !strings.Contains(err.Error(), "is older") {
		t.Errorf("older: %v", err)
	}
	o.AllowDowngrade, o.DryRun = true, true
	if _, err := e.install(o); err != nil {
		t.Errorf("older, with --allow-downgrade: %v", err)
	}
	if lines := differ(before, e.versions()); len(lines) > 0 {
		t.Errorf("changed:\n%s", strings.Join(lines, "\n"))
	}
}

// oldChart is the chart of the repository with an older version.
func oldChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "liqo")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "..", "deployments", "liqo"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "Chart.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^appVersion: .*$`).ReplaceAll(text, []byte(`appVersion: "0.0.1"`))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// interrupted: a program died and left a pending release.
func interrupted(t *testing.T, e *env, _ map[string]string) {
	helm, err := e.cluster.helm("liqo")
	if err != nil {
		t.Fatal(err)
	}
	setPending := func(age time.Duration) {
		last, err := lastRelease(helm)
		if err != nil {
			t.Fatal(err)
		}
		last.Info.Status, last.Info.LastDeployed = common.StatusPendingUpgrade, time.Now().Add(-age)
		if err := helm.Releases.Update(last); err != nil {
			t.Fatal(err)
		}
	}
	setPending(0)
	if _, err := e.install(options()); err == nil || !strings.Contains(err.Error(), "another installation of Liqo has been running") {
		t.Errorf("while another one runs: %v", err)
	}
	setPending(2 * waitLimit)
	last, err := lastRelease(helm)
	if err != nil {
		t.Fatal(err)
	}
	if last.Labels[labels.InstallTimeout] != waitLimit.String() || last.Labels[labels.InstallRun] == "" {
		t.Errorf("labels of the record: %v", last.Labels)
	}
	last.Labels[labels.InstallTimeout] = (3 * waitLimit).String()
	if err := helm.Releases.Update(last); err != nil {
		t.Fatal(err)
	}
	if _, err := e.install(options()); err == nil || !strings.Contains(err.Error(), "another installation of Liqo has been running") {
		t.Errorf("while another one runs, with a longer timeout: %v", err)
	}
	setPending(4 * waitLimit)
	if out, err := e.install(options()); err != nil || out.Unchanged {
		t.Errorf("after the other one died: %v %v", out, err)
	}
}

func inUseRefused(t *testing.T, e *env, _ map[string]string) {
	e.withoutWebhooks()
	peer := func(name string, conditions ...discoveryv1alpha1.PeeringCondition) *discoveryv1alpha1.ForeignCluster {
		fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		e.create(fc)
		for i := range conditions {
			conditions[i].LastTransitionTime = metav1.Now()
		}
		fc.Status.PeeringConditions = conditions
		if err := e.client.Status().Update(t.Context(), fc); err != nil {
			t.Fatal(err)
		}
		return fc
	}
	established := func(kind discoveryv1alpha1.PeeringConditionType) discoveryv1alpha1.PeeringCondition {
		return discoveryv1alpha1.PeeringCondition{Type: kind, Status: discoveryv1alpha1.StatusEstablished}
	}
	peers := []client.Object{
		peer("milan", established(discoveryv1alpha1.OutgoingPeering), established(discoveryv1alpha1.IncomingPeering)),
		peer("naples", established(discoveryv1alpha1.NetworkStatus)),
		peer("turin"),
	}
	offloading := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	offloading.SetGroupVersionKind(schema.GroupVersionKind{Group: "offloading.liqo.io", Version: "v1alpha1", Kind: "NamespaceOffloading"})
	offloading.SetNamespace("default")
	offloading.SetName("offloading")
	if err := e.client.Create(t.Context(), offloading); err != nil {
		t.Fatal(err)
	}
	before := e.versions()
	err := Uninstall(t.Context(), e.cluster, UninstallOptions{Namespace: "liqo", Purge: true, Timeout: waitLimit}, &recorder{})
	var used *inuse.Error
	if !errors.As(err, &used) {
		t.Fatalf("%v", err)
	}
	const want = "Liqo is in use, so nothing was changed; before it is uninstalled, you should:\n" +
		"- disable the outgoing peering with these clusters (`liqoctl unpeer out-of-band NAME`):\n    - milan\n" +
		"- disable the incoming peering of these clusters (`liqoctl unpeer out-of-band NAME`, here or in the other cluster):\n    - milan\n" +
		"- disable the network with these clusters:\n    - naples\n" +
		"- disable the offloading of these namespaces (`liqoctl unoffload namespace NAME`):\n    - default"
	if err.Error() != want {
		t.Errorf("%s\n\nwant\n\n%s", err, want)
	}
	if lines := differ(before, e.versions()); len(lines) > 0 {
		t.Errorf("changed:\n%s", strings.Join(lines, "\n"))
	}
	for _, object := range append(peers, offloading) {
		if err := e.client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// uninstalled: resource definitions and the namespace stay.
func uninstalled(t *testing.T, e *env, fresh map[string]string) {
	progress := &recorder{}
	if err := Uninstall(t.Context(), e.cluster, UninstallOptions{Namespace: "liqo", Timeout: waitLimit}, progress); err != nil {
		t.Fatal(err, progress.text())
	}
	for _, line := range differ(fresh, e.versions()) {
		if !strings.HasPrefix(line, "+ CustomResourceDefinitionList") &&
			!strings.Contains(line, "NamespaceList /liqo") && !strings.Contains(line, "kube-root-ca.crt") {
			t.Errorf("left: %s", line)
		}
	}
}

// purged: none of our objects stays, whatever its state and whichever process should have removed it.
func purged(t *testing.T, e *env, fresh map[string]string) {
	if _, err := e.install(options()); err != nil {
		t.Fatal(err)
	}
	helm, err := e.cluster.helm("liqo")
	if err != nil {
		t.Fatal(err)
	}
	// The state after the administrator removed the release's record by hand, with an active peering.
	if _, err := helm.Releases.Delete(Release, 1); err != nil {
		t.Fatal(err)
	}
	var identity corev1.ConfigMap
	if err := e.client.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "liqo-clusterid-configmap"}, &identity); err != nil {
		t.Fatal(err)
	}
	if err := e.client.Delete(t.Context(), &identity); err != nil {
		t.Fatal(err)
	}
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan-abcdef", Labels: map[string]string{labels.TenantNamespace: "true"}}}
	slice := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"consumerClusterID": "11111111-1111-4111-8111-111111111111", "providerClusterID": "22222222-2222-4222-8222-222222222222", "nodeName": "liqo-milan",
	}}}
	slice.SetGroupVersionKind(schema.GroupVersionKind{Group: "sharing.liqo.io", Version: "v1alpha1", Kind: "ResourceSlice"})
	slice.SetNamespace(tenant.Name)
	slice.SetName("rome")
	slice.SetFinalizers([]string{labels.FinalizerNode})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "liqo-milan", Labels: map[string]string{labels.Type: labels.TypeVirtualNode}}}
	for _, object := range []client.Object{tenant, slice, node} {
		if err := e.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	progress := &recorder{}
	if err := Uninstall(t.Context(), e.cluster, UninstallOptions{Namespace: "liqo", Purge: true, Timeout: waitLimit}, progress); err != nil {
		t.Fatal(err, progress.text())
	}
	// In a complete cluster, the objects in a deleted namespace would be deleted as well.
	for _, line := range differ(fresh, e.versions()) {
		if !strings.Contains(line, " liqo/") && !strings.Contains(line, " liqo-storage/") && !strings.Contains(line, tenant.Name) {
			t.Errorf("left: %s", line)
		}
	}
	if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(node), node); err == nil {
		t.Error("the virtual node is left")
	}
	e.sweep(t, "liqo")
}

// sweep does the work of the missing namespace controller: it removes the objects in a deleted namespace.
func (e *env) sweep(t *testing.T, namespace string) {
	t.Helper()
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"},
		{Version: "v1", Kind: "Secret"},
		{Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ServiceAccount"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	} {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		if err := e.client.DeleteAllOf(t.Context(), object, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
}

// failedInstallation: a failed installation leaves only resource definitions.
func failedInstallation(t *testing.T, e *env, fresh map[string]string) {
	o := options()
	o.Wait = true
	err := e.installUntilWait(o)
	if err == nil || !strings.Contains(err.Error(), "not ready after 5m0s") || !strings.Contains(err.Error(), "have been removed again") ||
		!strings.Contains(err.Error(), "Service liqo-auth has no address") {
		t.Errorf("%v", err)
	}
	for _, line := range differ(fresh, e.versions()) {
		if !strings.HasPrefix(line, "+ CustomResourceDefinitionList") {
			t.Errorf("left: %s", line)
		}
	}
}

// unmanagedStay: a namespace with objects of others is not deleted.
func unmanagedStay(t *testing.T, e *env, _ map[string]string) {
	if _, err := e.install(options()); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "mine"},
		// In this namespace, policy liqo-install-namespace admits no pod of others that could change a node.
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true)},
			Containers: []corev1.Container{{Name: "c", Image: "c", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "default"}}
	ours := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-peering-key", Labels: map[string]string{labels.AppPartOf: labels.PartOf}}}
	for _, object := range []client.Object{account, claim, ours} {
		if err := e.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	progress := &recorder{}
	if err := Uninstall(t.Context(), e.cluster, UninstallOptions{Namespace: "liqo", Purge: true, Timeout: waitLimit}, progress); err != nil {
		t.Fatal(err, progress.text())
	}
	if !strings.Contains(progress.text(), "WARN Namespace liqo stays: it holds objects that are not Liqo's: Pod mine") {
		t.Error(progress.text())
	}
	if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Error(err)
	}
	if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(ours), ours); !apierrors.IsNotFound(err) {
		t.Errorf("Secret %s: %v, want it gone", ours.Name, err)
	}
}
