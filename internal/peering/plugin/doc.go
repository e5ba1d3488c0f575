// SPDX-License-Identifier: Apache-2.0

// Package plugin calls a resource plugin: a program that decides, instead of the sharing percentage, what each peer may
// use. resource_reader.proto is the contract. The generated code is committed, so a build needs no protoc. To generate
// it, in this folder, with protoc 3.21 or later (Debian: protobuf-compiler):
//
//	GOBIN=$TMP go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//	GOBIN=$TMP go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
//	PATH=$TMP:$PATH protoc --go_out=. --go_opt=paths=source_relative \
//	    --go-grpc_out=. --go-grpc_opt=paths=source_relative resource_reader.proto
//
// The package must not know what a ResourceSlice is, nor what follows when the plugin does not answer. The proof is
// TestAgainstTheExample, with the program in examples/resourceplugin, which the test stops and starts.
package plugin
