// SPDX-License-Identifier: Apache-2.0

package names

import (
	"strings"
	"testing"
)

// shop is offloaded under another name, own under its own, and gone's name is that of another consumer's namespace here.
var mapping = map[string]string{"shop": "shop-rome-faf7bb", "own": "own", "long": strings.Repeat("l", 63)}

// milan is a provider.
var milan = Cluster{Domain: "cluster.local", Server: "liqo-dns.liqo"}

// TestLook: each name that Kubernetes documents is found in the remote namespace, in clusters of any two domains; names of namespaces that are not here do not
// exist, even if this cluster has a namespace of that name; everything else is none of our business.
func TestLook(t *testing.T) {
	same, other := NewView("cluster.local", Cluster{Domain: "cluster.local", Open: []string{"storage"}, Server: "liqo-dns.liqo"}, mapping),
		NewView("Rome.Example.", milan, mapping)
	outer, inner := NewView("local", milan, mapping), NewView("rome.cluster.local", milan, mapping)
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 40)
	for _, c := range []struct {
		view *View
		name string
		kind Kind
		want string
	}{
		{same, "web.shop.svc.cluster.local.", Mapped, "web.shop-rome-faf7bb.svc.cluster.local"},
		{same, "WEB.Shop.SVC.cluster.LOCAL", Mapped, "web.shop-rome-faf7bb.svc.cluster.local"},
		{same, "web-0.web.shop.svc.cluster.local.", Mapped, "web-0.web.shop-rome-faf7bb.svc.cluster.local"},
		{same, "_http._tcp.web.shop.svc.cluster.local.", Mapped, "_http._tcp.web.shop-rome-faf7bb.svc.cluster.local"},
		{same, "10-1-2-3.shop.pod.cluster.local.", Mapped, "10-1-2-3.shop-rome-faf7bb.pod.cluster.local"},
		{same, "shop.svc.cluster.local.", Mapped, "shop-rome-faf7bb.svc.cluster.local"},
		{same, "web.own.svc.cluster.local.", Mapped, "web.own.svc.cluster.local"},
		{same, "web.shop-rome-faf7bb.svc.cluster.local.", Pass, "web.shop-rome-faf7bb.svc.cluster.local"},
		{same, "db.prod.svc.cluster.local.", Absent, ""},
		{same, "kubernetes.default.svc.cluster.local.", Absent, ""},
		{same, "kube-dns.kube-system.svc.cluster.local.", Mapped, "liqo-dns.liqo.svc.cluster.local"},
		{same, "metrics.kube-system.svc.cluster.local.", Absent, ""},
		{same, "web.shop-milan-123456.svc.cluster.local.", Absent, ""},
		{same, "minio.storage.svc.cluster.local.", Mapped, "minio.storage.svc.cluster.local"},
		{same, "cluster.local.", Mapped, "cluster.local"},
		{same, "svc.cluster.local.", Mapped, "svc.cluster.local"},
		{same, "dns-version.cluster.local.", Mapped, "dns-version.cluster.local"},
		{same, "example.com.cluster.local.", Absent, ""},
		{same, "example.com.shop.svc.cluster.local.", Mapped, "example.com.shop-rome-faf7bb.svc.cluster.local"},
		{same, "shop.svc.", Pass, "shop.svc"},
		{same, "xcluster.local.", Pass, "xcluster.local"},
		{same, "example.com.", Pass, "example.com"},
		{same, ".", Pass, ""},
		{same, "3.2.1.10.in-addr.arpa.", Reverse, "3.2.1.10.in-addr.arpa"},
		{same, "a.0.0.f.ip6.arpa.", Reverse, "a.0.0.f.ip6.arpa"},
		{same, "a\xff\xc3.shop.svc.cluster.local.", Mapped, "a\xff\xc3.shop-rome-faf7bb.svc.cluster.local"},
		{same, long + ".shop.svc.cluster.local.", Mapped, long + ".shop-rome-faf7bb.svc.cluster.local"},
		{same, long + "." + strings.Repeat("d", 30) + ".long.svc.cluster.local.", Absent, ""}, // fits, but not there

		{other, "web.shop.svc.rome.example.", Mapped, "web.shop-rome-faf7bb.svc.cluster.local"},
		{other, "web.shop-rome-faf7bb.svc.rome.example.", Mapped, "web.shop-rome-faf7bb.svc.cluster.local"},
		{other, "db.prod.svc.rome.example.", Absent, ""},
		{other, "dns-default.openshift-dns.svc.rome.example.", Mapped, "liqo-dns.liqo.svc.cluster.local"},
		{other, "kube-dns.kube-system.svc.cluster.local.", Pass, "kube-dns.kube-system.svc.cluster.local"},
		{other, "rome.example.", Mapped, "cluster.local"},
		{other, "web.shop.svc.cluster.local.", Pass, "web.shop.svc.cluster.local"}, // this cluster's own, as it was
		{other, "kubernetes.default.svc.cluster.local.", Pass, "kubernetes.default.svc.cluster.local"},

		{outer, "web.shop.svc.local.", Mapped, "web.shop-rome-faf7bb.svc.cluster.local"},
		{outer, "web.shop.svc.cluster.local.", Pass, "web.shop.svc.cluster.local"},
		{inner, "web.shop.svc.rome.cluster.local.", Mapped, "web.shop-rome-faf7bb.svc.cluster.local"},
		{inner, "web.shop.svc.cluster.local.", Pass, "web.shop.svc.cluster.local"},
	} {
		kind, got := c.view.Look(c.name)
		if kind != c.kind || got != c.want {
			t.Errorf("%s (%s in %s): %v %q, want %v %q", c.name, c.view.theirs, c.view.ours, kind, got, c.kind, c.want)
		}
	}
}

// TestHome: a name of a remote namespace is the consumer's again, and no other name is taken for one.
func TestHome(t *testing.T) {
	same, other := NewView("cluster.local", Cluster{Domain: "cluster.local", Open: []string{"storage", "own"}, Server: "liqo-dns.liqo"}, mapping),
		NewView("rome.example", milan, mapping)
	for _, c := range []struct {
		view       *View
		name, want string
		own        bool
	}{
		{same, "web-0.web.shop-rome-faf7bb.svc.cluster.local.", "web-0.web.shop.svc.cluster.local", true},
		{other, "Web-0.web.shop-rome-faf7bb.svc.cluster.local.", "web-0.web.shop.svc.rome.example", true},
		{other, "web.own.svc.cluster.local", "web.own.svc.rome.example", true},
		{other, "ns.dns.cluster.local.", "ns.dns.rome.example", true},
		{same, "minio.storage.svc.cluster.local.", "minio.storage.svc.cluster.local", true},
		{same, "liqo-dns.liqo.svc.cluster.local.", "liqo-dns.liqo.svc.cluster.local.", false},
		{same, "web.shop.svc.cluster.local.", "web.shop.svc.cluster.local.", false}, // of a namespace of this cluster
		{other, "minio.storage.svc.cluster.local.", "minio.storage.svc.cluster.local.", false},
		{other, "example.com.", "example.com.", false},
	} {
		if got, own := c.view.Home(c.name); got != c.want || own != c.own {
			t.Errorf("%s (%s): %q %v, want %q %v", c.name, c.view.theirs, got, own, c.want, c.own)
		}
	}
}

// TestThereAndBack: whatever is asked for in a mapped namespace comes back as it was.
func TestThereAndBack(t *testing.T) {
	for _, theirs := range []string{"cluster.local", "rome.example", "local", "rome.cluster.local"} {
		view := NewView(theirs, milan, mapping)
		for local := range mapping {
			for _, rest := range []string{"", "web.", "web-0.web.", "_http._tcp.web.", "a.b.c.d.e."} {
				for _, kind := range []string{"svc", "pod"} {
					name := rest + local + "." + kind + "." + theirs
					found, asked := view.Look(name)
					if home, own := view.Home(asked); found != Mapped || !own || home != name {
						t.Errorf("%s becomes %s, and %s again", name, asked, home)
					}
				}
			}
		}
	}
}
