// SPDX-License-Identifier: Apache-2.0

// Package names decides what names mean for the pods of a peer (ADR 41). A pod that runs for another cluster asks for the names of that cluster: a Service
// web of its namespace shop is web.shop.svc.DOMAIN there, whatever the remote namespace is called, and whatever the domain of this cluster is.
//
// The package is pure: it reads and writes DNS messages, and the DNS settings of a pod. It must not know who asks, nor who answers. TestLook, TestReply
// and TestConfig prove it; TestServe of its caller asks with the resolver of Go and with what resolvers send.
package names
