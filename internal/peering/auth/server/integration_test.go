// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/client"
)

const install = "liqo"

// cluster is a real API server, with clients for an administrator and for the service.
type cluster struct {
	admin   *kubernetes.Clientset
	config  *rest.Config
	service *corev1client.CoreV1Client
}

// TestServerAgainstAPIServer runs the service under an account with exactly the rights of the markers in identity.go,
// bound as the chart and the tenant controller bind them.
func TestServerAgainstAPIServer(t *testing.T) {
	config := kubetest.Cluster(t)
	c := &cluster{config: config, admin: kubernetes.NewForConfigOrDie(config)}
	c.install(t)
	go c.tenants(t.Context())

	t.Run("first contact and renewal", c.firstContact)
	t.Run("another key", c.anotherKey)
	t.Run("two clusters of one name", c.sameName)
	t.Run("revoked", c.revoked)
	t.Run("token replaced", c.tokenReplaced)
	t.Run("clock a day ahead", c.clockAhead)
	t.Run("tenant never ready", c.neverReady)
	t.Run("unpinned while waiting", c.unpinned)
	t.Run("keys replaced", c.keysReplaced)
	t.Run("rights", c.rights)
}

func must[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func (c *cluster) install(t *testing.T) {
	ctx := t.Context()
	must(c.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: install}}, metav1.CreateOptions{}))(t)
	must(c.admin.CoreV1().Secrets(install).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: auth.SharedTokenSecret}, StringData: map[string]string{auth.SharedTokenKey: goodToken},
	}, metav1.CreateOptions{}))(t)
	must(
		c.admin.CoreV1().ServiceAccounts(install).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "liqo-auth"}}, metav1.CreateOptions{}),
	)(t)

	node := node("control-plane", true, "192.0.2.7")
	node.Labels = map[string]string{controlPlaneRole: ""}
	made := must(c.admin.CoreV1().Nodes().Create(ctx, &node, metav1.CreateOptions{}))(t)
	made.Status = node.Status
	must(c.admin.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{}))(t)

	roles := markers(t)
	must(c.admin.RbacV1().Roles(install).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-auth"}, Rules: roles["liqo"],
	}, metav1.CreateOptions{}))(t)
	must(c.admin.RbacV1().RoleBindings(install).Create(ctx, bindingTo("Role", "liqo-auth"), metav1.CreateOptions{}))(t)
	for name, rules := range map[string][]rbacv1.PolicyRule{"liqo-auth": roles[""], "liqo-auth-tenant": roles["liqo-tenant"]} {
		must(c.admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}))(t)
	}
	binding := bindingTo("ClusterRole", "liqo-auth")
	must(c.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: binding.ObjectMeta, RoleRef: binding.RoleRef, Subjects: binding.Subjects,
	}, metav1.CreateOptions{}))(t)

	token := must(c.admin.CoreV1().ServiceAccounts(install).CreateToken(ctx, "liqo-auth", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
	logged.secret(token.Status.Token)
	c.service = corev1client.NewForConfigOrDie(c.as(token.Status.Token))
}

func bindingTo(kind, name string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "liqo-auth", Namespace: install}},
	}
}

// as is the configuration of the holder of a token.
func (c *cluster) as(token string) *rest.Config {
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = token
	return config
}

// markers reads the rights of the RBAC markers in the source, by namespace.
func markers(t *testing.T) map[string][]rbacv1.PolicyRule {
	source := must(os.ReadFile("identity.go"))(t)
	rules := map[string][]rbacv1.PolicyRule{}
	for _, marker := range regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:(.*)$`).FindAllStringSubmatch(string(source), -1) {
		values := map[string][]string{}
		for pair := range strings.SplitSeq(marker[1], ",") {
			key, value, _ := strings.Cut(pair, "=")
			values[key] = strings.Split(strings.ReplaceAll(value, `""`, ""), ";")
		}
		namespace := ""
		if len(values["namespace"]) > 0 {
			namespace = values["namespace"][0]
		}
		rules[namespace] = append(rules[namespace], rbacv1.PolicyRule{
			APIGroups: values["groups"], Resources: values["resources"], ResourceNames: values["resourceNames"], Verbs: values["verbs"],
		})
	}
	if len(rules) != 3 {
		t.Fatalf("markers: %v", rules)
	}
	return rules
}

// stuck is the name of a cluster whose tenant is never created.
const stuck = "stuck"

// tenants replaces the tenant controller. It records the namespace on the pin before it binds the rights, which is the
// worst order for the service.
func (c *cluster) tenants(ctx context.Context) {
	for ctx.Err() == nil {
		watch, err := c.admin.CoreV1().ConfigMaps(install).Watch(ctx, metav1.ListOptions{LabelSelector: labels.PinnedKey + "=true"})
		if err != nil {
			continue // the test ends, or fails for want of tenants
		}
		for event := range watch.ResultChan() {
			pin, ok := event.Object.(*corev1.ConfigMap)
			if ok && event.Type == "ADDED" && pin.Data[auth.PinNamespace] == "" && pin.Data[auth.PinClusterName] != stuck {
				c.makeTenant(ctx, pin)
			}
		}
		watch.Stop()
	}
}

func (c *cluster) makeTenant(ctx context.Context, pin *corev1.ConfigMap) {
	peer := discoveryv1alpha1.ClusterIdentity{ClusterID: pin.Data[auth.PinClusterID], ClusterName: pin.Data[auth.PinClusterName]}
	namespace := peer.TenantNamespace()
	// A failure here shows in the test that waits for the result.
	_, _ = c.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	pin.Data[auth.PinNamespace] = namespace
	_, _ = c.admin.CoreV1().ConfigMaps(install).Update(ctx, pin, metav1.UpdateOptions{})
	_, _ = c.admin.RbacV1().RoleBindings(namespace).Create(ctx, bindingTo("ClusterRole", "liqo-auth-tenant"), metav1.CreateOptions{})
	_, _ = c.admin.CoreV1().ServiceAccounts(namespace).
		Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: PeerServiceAccount}}, metav1.CreateOptions{})
}

func (c *cluster) env(t *testing.T, change func(*Registry)) *env {
	registry := Registry{Client: c.service, Namespace: install, Address: Address{
		Nodes: c.service, CA: func() ([]byte, error) { return c.config.CAData, nil },
	}}
	if change != nil {
		change(&registry)
	}
	return newEnv(t, func(o *Options) {
		o.Peers, o.Tokens = registry, SecretTokens{Secrets: c.service, Namespace: install}
	})
}

func peerOf(id, name string) discoveryv1alpha1.ClusterIdentity {
	return discoveryv1alpha1.ClusterIdentity{ClusterID: id + "-bbbb-4ccc-8ddd-eeeeeeeeeeee", ClusterName: name}
}

func of(cluster discoveryv1alpha1.ClusterIdentity) client.Registration {
	r := registration(cluster.ClusterID)
	r.Cluster = cluster
	return r
}

// whoami asks the API server who holds a token.
func (c *cluster) whoami(t *testing.T, token string) (string, error) {
	logged.secret(token)
	answer, err := kubernetes.NewForConfigOrDie(c.as(token)).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.UserInfo.Username, nil
}

func (c *cluster) firstContact(t *testing.T) {
	b, peer := c.env(t, nil), peerOf("00000001", "one")
	r := of(peer)
	r.DryRun = true
	if _, err := b.client.Register(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.CoreV1().ConfigMaps(install).Get(t.Context(), auth.PinName(peer.ClusterID), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run pinned the key: %v", err)
	}
	first, err := b.client.Register(t.Context(), of(peer))
	if err != nil {
		t.Fatal(err)
	}
	if first.Namespace != peer.TenantNamespace() || first.Lifetime != time.Hour ||
		first.APIServerURL != "https://192.0.2.7:6443" || string(first.APIServerCA) != string(c.config.CAData) {
		t.Errorf("%s, %s, %s", first.Namespace, first.Lifetime, first.APIServerURL)
	}
	inside := milan
	inside.InBand = true
	if grant, err := b.client.Renew(t.Context(), inside, peer, newKey(peer.ClusterID)); err != nil ||
		grant.APIServerURL != "https://kubernetes.default.svc" || string(grant.APIServerCA) != string(c.config.CAData) {
		t.Errorf("in-band, the API server is %s, %v", grant.APIServerURL, err)
	}
	want := "system:serviceaccount:" + peer.TenantNamespace() + ":" + PeerServiceAccount
	if who, err := c.whoami(t, first.Token); who != want {
		t.Errorf("the token is of %q, %v", who, err)
	}
	pin := must(c.admin.CoreV1().ConfigMaps(install).Get(t.Context(), auth.PinName(peer.ClusterID), metav1.GetOptions{}))(t)
	if pin.Labels[labels.ClusterID] != peer.ClusterID || pin.Labels[labels.PinnedKey] != "true" || pin.Data[auth.PinAuthURL] != r.AuthURL {
		t.Errorf("%v %v", pin.Labels, pin.Data)
	}
	for name, again := range map[string]func() (auth.Grant, error){
		"first contact again": func() (auth.Grant, error) { return b.client.Register(t.Context(), of(peer)) },
		"renewal":             func() (auth.Grant, error) { return b.client.Renew(t.Context(), milan, peer, newKey(peer.ClusterID)) },
	} {
		grant, err := again()
		if who, _ := c.whoami(t, grant.Token); err != nil || who != want {
			t.Errorf("%s: %q, %v", name, who, err)
		}
	}
	after := must(c.admin.CoreV1().ConfigMaps(install).Get(t.Context(), auth.PinName(peer.ClusterID), metav1.GetOptions{}))(t)
	if after.ResourceVersion != pin.ResourceVersion {
		t.Error("the pinned key was written again")
	}
}

func (c *cluster) anotherKey(t *testing.T) {
	b, peer := c.env(t, nil), peerOf("00000002", "two")
	if _, err := b.client.Register(t.Context(), of(peer)); err != nil {
		t.Fatal(err)
	}
	thief := of(peer)
	thief.Key, thief.ClusterKey = newKey("thief"), newKey("cluster thief")
	if _, err := b.client.Register(t.Context(), thief); !errors.Is(err, auth.ErrConflict) {
		t.Errorf("registered: %v", err)
	}
	if _, err := b.client.Renew(t.Context(), milan, peer, thief.Key); !errors.Is(err, auth.ErrConflict) {
		t.Errorf("renewed: %v", err)
	}
	if err := c.admin.CoreV1().ConfigMaps(install).Delete(t.Context(), auth.PinName(peer.ClusterID), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Renew(t.Context(), milan, peer, newKey(peer.ClusterID)); !errors.Is(err, auth.ErrConflict) {
		t.Errorf("renewed without a pinned key: %v", err)
	}
	if _, err := b.client.Register(t.Context(), thief); err != nil {
		t.Errorf("after the old peering was ended: %v", err)
	}
}

// keysReplaced: this process stores what a consumer has proven, and waits until the controller manager has pinned it.
func (c *cluster) keysReplaced(t *testing.T) {
	b, peer := c.env(t, nil), peerOf("00000009", "nine")
	if _, err := b.client.Register(t.Context(), of(peer)); err != nil {
		t.Fatal(err)
	}
	r := of(peer)
	r.Secret, r.Previous = "", []ed25519.PrivateKey{r.Key, r.ClusterKey}
	r.Key, r.ClusterKey = newKey("nine"), newKey("cluster nine")
	done := make(chan error)
	go func() {
		grant, err := b.client.Register(t.Context(), r)
		logged.secret(grant.Token)
		done <- err
	}()
	var stored *corev1.ConfigMap
	eventually(t, "the new keys are stored", func() (there bool) {
		var err error
		stored, err = c.admin.CoreV1().ConfigMaps(install).Get(t.Context(), auth.ReplacementName(peer.ClusterID), metav1.GetOptions{})
		return err == nil
	})
	pin := must(c.admin.CoreV1().ConfigMaps(install).Get(t.Context(), auth.PinName(peer.ClusterID), metav1.GetOptions{}))(t)
	by, before := must(auth.ParseReplacement(stored))(t), must(auth.ParsePin(pin))(t)
	if !by.ProvenTo(provider.ClusterID, before) || by.Done(before) {
		t.Fatalf("stored: %v", stored.Data)
	}
	by.Into(pin)
	must(c.admin.CoreV1().ConfigMaps(install).Update(t.Context(), pin, metav1.UpdateOptions{}))(t)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func (c *cluster) sameName(t *testing.T) {
	b := c.env(t, nil)
	one, err := b.client.Register(t.Context(), of(peerOf("00000003", "same")))
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.client.Register(t.Context(), of(peerOf("00000004", "same")))
	if err != nil || one.Namespace == other.Namespace {
		t.Errorf("%s and %s, %v", one.Namespace, other.Namespace, err)
	}
	logged.secret(one.Token, other.Token)
}

func (c *cluster) revoked(t *testing.T) {
	b, peer := c.env(t, nil), peerOf("00000005", "five")
	grant, err := b.client.Register(t.Context(), of(peer))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.whoami(t, grant.Token); err != nil {
		t.Fatal(err)
	}
	if err := c.admin.CoreV1().ServiceAccounts(grant.Namespace).Delete(t.Context(), PeerServiceAccount, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var refusal *auth.Error
	if _, err := b.client.Renew(t.Context(), milan, peer, newKey(peer.ClusterID)); !errors.As(err, &refusal) ||
		refusal.Code != 403 || refusal.Reason != auth.ReasonRevoked {
		t.Errorf("renewed: %v", err)
	}
	// The same, if our own rights in the namespace went first.
	if err := c.admin.RbacV1().RoleBindings(grant.Namespace).Delete(t.Context(), "liqo-auth-tenant", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Renew(t.Context(), milan, peer, newKey(peer.ClusterID)); !errors.Is(err, auth.ErrConflict) {
		t.Errorf("renewed: %v", err)
	}
	// The API server caches successful authentications for ten seconds.
	eventually(t, "the token is refused", func() bool {
		_, err := c.whoami(t, grant.Token)
		return apierrors.IsUnauthorized(err)
	})
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	(&kubetest.Env{T: t}).Until(what, done)
}

func (c *cluster) tokenReplaced(t *testing.T) {
	b := c.env(t, nil)
	replace := func(token string) {
		secret := must(c.admin.CoreV1().Secrets(install).Get(t.Context(), auth.SharedTokenSecret, metav1.GetOptions{}))(t)
		secret.Data[auth.SharedTokenKey] = []byte(token)
		must(c.admin.CoreV1().Secrets(install).Update(t.Context(), secret, metav1.UpdateOptions{}))(t)
	}
	defer replace(goodToken)
	replace("another token, by hand\n")
	r := of(peerOf("00000006", "six"))
	r.DryRun = true
	if _, err := b.client.Register(t.Context(), r); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("the old token: %v", err)
	}
	r.Secret = "another token, by hand"
	if _, err := b.client.Register(t.Context(), r); err != nil {
		t.Errorf("the new token: %v", err)
	}
}

func (c *cluster) clockAhead(t *testing.T) {
	b, peer := c.env(t, nil), peerOf("00000007", "seven")
	b.clock.advance(time.Until(b.clock.Now()) * -1) // the real time
	b.clock.advance(24 * time.Hour)
	ids, err := b.client.IDs(t.Context())
	if ahead := time.Until(ids.Date); err != nil || ahead < 23*time.Hour {
		t.Errorf("%s, %v", ahead, err)
	}
	grant, err := b.client.Register(t.Context(), of(peer))
	if err != nil || grant.Lifetime != time.Hour {
		t.Errorf("%s, %v", grant.Lifetime, err)
	}
	if grant, err = b.client.Renew(t.Context(), milan, peer, newKey(peer.ClusterID)); err != nil || grant.Lifetime != time.Hour {
		t.Errorf("%s, %v", grant.Lifetime, err)
	}
}

func (c *cluster) neverReady(t *testing.T) {
	b := c.env(t, func(r *Registry) { r.Wait = 300 * time.Millisecond })
	_, err := b.client.Register(t.Context(), of(peerOf("00000008", stuck)))
	var refusal *auth.Error
	if !errors.As(err, &refusal) || refusal.Reason != auth.ReasonTenantNotReady || !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func (c *cluster) unpinned(t *testing.T) {
	b, peer := c.env(t, nil), peerOf("00000009", stuck)
	done := make(chan error, 1)
	go func() {
		_, err := b.client.Register(t.Context(), of(peer))
		done <- err
	}()
	eventually(t, "the key is pinned", func() bool {
		return c.admin.CoreV1().ConfigMaps(install).Delete(t.Context(), auth.PinName(peer.ClusterID), metav1.DeleteOptions{}) == nil
	})
	select {
	case err := <-done:
		if !errors.Is(err, auth.ErrUnavailable) {
			t.Error(err)
		}
	case <-time.After(kubetest.InTime):
		t.Error("still waiting for a tenant that will not be created")
	}
}

// rights checks what the process that unauthenticated clients reach cannot do, even if it is compromised.
func (c *cluster) rights(t *testing.T) {
	b, peer := c.env(t, nil), peerOf("0000000a", "ten")
	grant, err := b.client.Register(t.Context(), of(peer))
	if err != nil {
		t.Fatal(err)
	}
	must(c.admin.CoreV1().ServiceAccounts(grant.Namespace).
		Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "virtual-kubelet"}}, metav1.CreateOptions{}))(t)
	for name, call := range map[string]func() error{
		"token of another account": func() error {
			_, err := c.service.ServiceAccounts(grant.Namespace).CreateToken(t.Context(), "virtual-kubelet", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		},
		"token in another namespace": func() error {
			_, err := c.service.ServiceAccounts("kube-system").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		},
		"other Secrets": func() error {
			_, err := c.service.Secrets(install).Get(t.Context(), "another", metav1.GetOptions{})
			return err
		},
		"all Secrets": func() error {
			_, err := c.service.Secrets(install).List(t.Context(), metav1.ListOptions{})
			return err
		},
		"unpinning": func() error {
			return c.service.ConfigMaps(install).Delete(t.Context(), auth.PinName(peer.ClusterID), metav1.DeleteOptions{})
		},
		"pinning anew": func() error {
			_, err := c.service.ConfigMaps(install).Update(
				t.Context(), auth.Pin{Cluster: peer, Key: ed25519.PublicKey(newKey("x")[32:])}.ConfigMap(install), metav1.UpdateOptions{},
			)
			return err
		},
		"namespaces": func() error {
			_, err := c.service.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := call(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v; want Forbidden", name, err)
		}
	}
}
