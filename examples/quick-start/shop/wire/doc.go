// SPDX-License-Identifier: Apache-2.0

// Package wire is the gRPC protocol between the services of the shop. shop.proto is the contract; the generated code
// is committed, so a build needs no protoc. To generate it again, in this folder, with protoc 3.21 or later (Debian:
// protobuf-compiler):
//
//	GOBIN=$TMP go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//	GOBIN=$TMP go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
//	PATH=$TMP:$PATH protoc --go_out=. --go_opt=paths=source_relative \
//		--go-grpc_out=. --go-grpc_opt=paths=source_relative shop.proto
//
// It must not know what a service does with it. The tests of the shop prove it.
package wire
