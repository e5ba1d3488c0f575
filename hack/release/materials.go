// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// billOfMaterials returns the SPDX document (version 2.3, JSON) of a program: what the linker wrote into it, so no module that is only in go.mod.
func (c contents) billOfMaterials(program string, info *debug.BuildInfo) ([]byte, error) {
	const self = common.ElementID("Package-0")
	document := v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: program, DocumentNamespace: "https://liqo.io/spdx/" + program + "/" + c.from.id,
		CreationInfo: &v2_3.CreationInfo{
			Created: c.from.time.Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "liqo-release"}},
		},
		Packages: []*v2_3.Package{{
			PackageName: program, PackageSPDXIdentifier: self, PackageVersion: c.version, PackageDownloadLocation: "NOASSERTION",
			PackageLicenseConcluded: "Apache-2.0", PackageLicenseDeclared: "Apache-2.0", PackageCopyrightText: "NOASSERTION",
		}},
		Relationships: []*v2_3.Relationship{{
			RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", string(self)), Relationship: common.TypeRelationshipDescribe,
		}},
	}
	modules := append([]*debug.Module{{Path: "std", Version: info.GoVersion}}, info.Deps...)
	for i, module := range modules {
		licence, ok := c.licences[module.Path]
		if !ok {
			return nil, fmt.Errorf("%s has module %s, whose licence was not read", program, module.Path)
		}
		used := module
		if module.Replace != nil {
			used = module.Replace
		}
		id := common.ElementID(fmt.Sprintf("Package-%d", i+1))
		document.Packages = append(document.Packages, &v2_3.Package{
			PackageName: used.Path, PackageSPDXIdentifier: id, PackageVersion: used.Version, PackageDownloadLocation: "NOASSERTION",
			PackageLicenseConcluded: licence.expression(), PackageLicenseDeclared: licence.expression(), PackageCopyrightText: "NOASSERTION",
			// The hash of a module is one over its files, as go.sum has it; SPDX has no field for it.
			PackageSourceInfo: used.Sum,
			PackageExternalReferences: []*v2_3.PackageExternalReference{{
				Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + used.Path + "@" + used.Version,
			}},
		})
		document.Relationships = append(document.Relationships, &v2_3.Relationship{
			RefA: common.MakeDocElementID("", string(self)), RefB: common.MakeDocElementID("", string(id)), Relationship: common.TypeRelationshipContains,
		})
	}
	var text bytes.Buffer
	err := spdxjson.Write(document, &text, spdxjson.Indent(" "), spdxjson.EscapeHTML(false))
	return text.Bytes(), err
}

// provenance returns an unsigned in-toto statement (version 1) with SLSA's provenance (version 1): which commit the files come from, and how to
// build the same ones.
func (c contents) provenance(files []checksum) ([]byte, error) {
	type digest map[string]string
	type subject struct {
		Name   string `json:"name"`
		Digest digest `json:"digest"`
	}
	subjects := make([]subject, 0, len(files))
	for _, file := range files {
		subjects = append(subjects, subject{file.name, digest{"sha256": file.sha256}})
	}
	statement := map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":            "https://liqo.io/build/make-release/v1",
				"externalParameters":   map[string]string{"image": c.image, "version": c.version},
				"resolvedDependencies": []map[string]any{{"uri": "git+https://liqo.io/liqo", "digest": digest{"gitCommit": c.from.id}}},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": "https://liqo.io/build/make-release"}},
		},
	}
	text, err := json.MarshalIndent(statement, "", " ")
	return append(text, '\n'), err
}
