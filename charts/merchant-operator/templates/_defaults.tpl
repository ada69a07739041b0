{{/*
Sets values that are missing or null to their defaults. Helm takes a null away before templates are rendered, and --reuse-values has none of
the values that an older chart did not have. Each template begins with it.
*/}}
{{- define "merchant-operator.defaults" -}}
{{- include "merchant-operator.fill" (dict "values" .Values "defaults" (.Files.Get "files/defaults.yaml" | fromYaml)) -}}
{{- end -}}

{{/* Takes values and defaults. In a map whose names are the user's, null takes away a name of the default. */}}
{{- define "merchant-operator.fill" -}}
{{- range $name, $default := .defaults -}}
{{- $value := index $.values $name -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := set $.values $name $default -}}
{{- else if and (kindIs "map" $default) (not (has $name (list "resources" "labels" "podSecurityContext"))) -}}
{{- include "merchant-operator.fill" (dict "values" $value "defaults" $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}
