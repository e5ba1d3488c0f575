// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestPairIsTwoClusters(t *testing.T) {
	start := time.Now()
	consumerConfig, providerConfig := Pair(t)
	t.Logf("pair ready after %s", time.Since(start).Round(time.Millisecond))
	consumer, provider := clientset(t, consumerConfig), clientset(t, providerConfig)
	ctx := t.Context()

	if consumerConfig.Host == providerConfig.Host {
		t.Fatalf("both clusters answer at %s", consumerConfig.Host)
	}
	// One certificate authority each: the identity of one side must not be valid on the other.
	unauthenticated := rest.CopyConfig(consumerConfig)
	unauthenticated.Host, unauthenticated.CAData = providerConfig.Host, providerConfig.CAData
	if _, err := clientset(t, unauthenticated).CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the provider answered the consumer's administrator with %v, want Unauthorized", err)
	}

	createNamespace(t, consumer, "only-here")
	if _, err := provider.CoreV1().Namespaces().Get(ctx, "only-here", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("namespace made in the consumer, seen from the provider: %v, want NotFound", err)
	}

	here, there := createNamespace(t, consumer, "same-name"), createNamespace(t, provider, "same-name")
	if here.UID == there.UID {
		t.Errorf("namespaces of the same name in two clusters share the UID %s", here.UID)
	}
	for name, client := range map[string]*kubernetes.Clientset{"consumer": consumer, "provider": provider} {
		version, err := client.Discovery().ServerVersion()
		if err != nil {
			t.Fatalf("version of the %s: %v", name, err)
		}
		if !strings.HasPrefix(version.GitVersion, "v1.") {
			t.Errorf("the %s reports version %q, want v1.x", name, version.GitVersion)
		}
		t.Logf("%s: Kubernetes %s", name, version.GitVersion)
	}
}

// A manager that does not close its watches must not make each test wait for
// the grace period of the API server: stop kills it instead.
func TestStopDoesNotWaitForAnOpenWatch(t *testing.T) {
	configs, stop, err := start(assets(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := clientset(t, configs[0]).CoreV1().Namespaces().Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Error(err)
	} else {
		defer watch.Stop()
	}
	report(t, stop()) // an error if a process still runs after stopTimeout
}

func TestSharedPairIsStartedOnce(t *testing.T) {
	assets(t)
	var hosts [2]string
	for i := range hosts {
		t.Run("user", func(t *testing.T) {
			consumer, provider := SharedPair(t)
			hosts[i] = consumer.Host + " " + provider.Host
			createNamespace(t, clientset(t, consumer), "shared-"+string(rune('a'+i)))
		})
	}
	if hosts[0] != hosts[1] {
		t.Errorf("two callers got different pairs: %q and %q", hosts[0], hosts[1])
	}
}

const victimVariable = "LIQO_KUBETEST_VICTIM"

// In the process that TestNothingIsLeftAfterAKill starts and kills, the binary
// is not a test: it brings a pair up and waits.
func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	if os.Getenv(victimVariable) == "" {
		os.Exit(m.Run())
	}
	if _, err := shared(os.Getenv(assetsVariable)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("up and waiting")
	var never chan struct{}
	<-never
}

func TestNothingIsLeftAfterAKill(t *testing.T) {
	assets(t)
	temp := t.TempDir()
	cache := t.TempDir() // envtest remembers ports there for two minutes
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), "TMPDIR="+temp, "XDG_CACHE_HOME="+cache, victimVariable+"=1")
	output, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	seen := make([]byte, 0, 4096)
	for !strings.Contains(string(seen), "up and waiting") {
		n, err := output.Read(seen[len(seen):cap(seen)])
		seen = seen[:len(seen)+n]
		if err != nil {
			t.Fatalf("the victim ended early: %v\n%s", err, seen)
		}
	}
	pids := pidFiles(t, temp)
	if len(pids) != 4 {
		t.Fatalf("a pair has process ids %v, want four", pids)
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // killed, so an error by intention

	Eventually(t, "no file and no process is left", func() error {
		entries, err := os.ReadDir(temp)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return errors.New("still there: " + entries[0].Name())
		}
		for _, pid := range pids {
			// A zombie has an empty command line; whether its parent reaps it is not our concern.
			if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && len(line) > 0 {
				return errors.New("still running: process " + pid)
			}
		}
		return nil
	})
}

func TestBrokenAssetsAreAFailure(t *testing.T) {
	empty := t.TempDir()
	script := filepath.Join(empty, "kube-apiserver")
	if err := executable(script); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing program: %v, want not-exist", err)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := executable(script); err == nil {
		t.Error("a file that is not executable was accepted")
	}
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	if _, _, err := start(empty, 1); err == nil || !strings.Contains(err.Error(), empty) {
		t.Errorf("start without etcd: %v, want an error that names %s", err, empty)
	}
	if entries, err := os.ReadDir(temp); err != nil || len(entries) > 0 {
		t.Errorf("left behind after a failed start: %v %v", entries, err)
	}
}

func pidFiles(t *testing.T, dir string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.pid"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, strings.TrimSpace(string(text)))
	}
	return pids
}

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func createNamespace(t *testing.T, client *kubernetes.Clientset, name string) *corev1.Namespace {
	t.Helper()
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace %s: %v", name, err)
	}
	return namespace
}

// A garbage collection once closed the guard's pipe, and so ended the servers.
func TestSharedPairSurvivesGarbageCollection(t *testing.T) {
	for range 3 {
		consumer, _ := SharedPair(t)
		runtime.GC()
		runtime.GC()
		client, err := rest.HTTPClientFor(consumer)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Get(consumer.Host + "/readyz")
		if err != nil {
			t.Fatalf("after a garbage collection: %v", err)
		}
		response.Body.Close()
	}
}

// The server must not resolve the name of a webhook's Service that has no endpoints.
func TestWebhooksAreNotResolvedByName(t *testing.T) {
	client := clientset(t, Cluster(t))
	createNamespace(t, client, "hooks")
	ctx := t.Context()
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "empty", Namespace: "hooks"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "none"}, Ports: []corev1.ServicePort{{Port: 443}}},
	}
	if _, err := client.CoreV1().Services("hooks").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "hook.liqo.io", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "hooks", Name: "empty"}},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
		}}},
	}}}
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := 0; err == nil && ctx.Err() == nil; i++ { // until the server has observed the webhook and the Service
		_, err = client.CoreV1().ConfigMaps("hooks").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}, metav1.CreateOptions{})
	}
	if err == nil || !strings.Contains(err.Error(), "endpoints") && !strings.Contains(err.Error(), "not found") {
		t.Errorf("%v, want an error about missing endpoints", err)
	}
}
