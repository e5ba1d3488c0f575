// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"

	"liqo.io/liqo/playground/internal/topology"
)

// The configurations are what an administrator would write: a WebSocket passes, other paths are not found, and the programs'
// own time limits and buffers stay.

func (p Proxy) nginx(c topology.Cluster) string {
	listen, scheme, other := fmt.Sprint(p.Listen), "http", ""
	if p.TLS {
		listen += " ssl;\n\t\tssl_certificate /etc/proxy/tls.crt;\n\t\tssl_certificate_key /etc/proxy/tls.key"
	}
	if p.ToTLS {
		scheme = "https"
	}
	if p.Path != "/" {
		other = "\n\t\tlocation / {\n\t\t\treturn 404;\n\t\t}"
	}
	return fmt.Sprintf(`user root;
daemon off;
pid /run/nginx.pid;
error_log stderr info;
events {}
http {
	access_log /var/log/access.log;
	map $http_upgrade $connection_upgrade {
		default upgrade;
		'' close;
	}
	upstream cluster {
%s	}
	server {
		listen %s;
		location %s {
			proxy_pass %s://cluster;
			proxy_http_version 1.1;
			proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $connection_upgrade;
		}%s
	}
}
`, p.servers(c, "\t\tserver %[2]s:%[3]d;"), listen, p.Path, scheme, other)
}

func (p Proxy) haproxy(c topology.Cluster) string {
	listen, server := fmt.Sprint(p.Listen), "\tserver %s %s:%d"
	if p.TLS {
		listen += " ssl crt /etc/proxy/tls.pem"
	}
	if p.ToTLS {
		server += " ssl verify none"
	}
	return fmt.Sprintf(`global
	log stderr format raw local0
defaults
	mode http
	log global
	option httplog
	option forwardfor
	timeout connect 5s
	timeout client 60s
	timeout server 60s
	timeout tunnel 1h
frontend outside
	bind :%s
	http-request return status 404 unless { path_beg %s }
	default_backend cluster
backend cluster
	balance roundrobin
%s`, listen, p.Path, p.servers(c, server))
}

func (p Proxy) tinyproxy() string {
	credentials := ""
	if p.User != "" {
		credentials = fmt.Sprintf("BasicAuth %s %s\n", p.User, p.Password)
	}
	return fmt.Sprintf(`Port %d
Timeout 600
MaxClients 100
LogLevel Connect
%s`, p.Listen, credentials)
}
