{{/* Arguments of a monitored ops port. */}}

{{- define "merchant-operator.opsArgs" -}}
{{- if .Values.monitoring.enabled }}
- --secure-metrics
{{- if .Values.monitoring.certificateSecretName }}
- --ops-cert-dir=/etc/merchant-operator/ops-certificate
{{- end }}
{{- end }}
{{- end -}}

{{/* Certificates and tokens of a role, each the name of a volume and its Secret, with the key if only a part is needed; or the audience of
the token. Takes root and role. */}}
{{- define "merchant-operator.certificates" -}}
{{- with .root.Values }}
{{- if and .redis.tls.caSecretName (ne $.role "operator") }}
- {name: redis-ca, secretName: {{ .redis.tls.caSecretName | quote }}}
{{- end }}
{{- if and .monitoring.enabled .monitoring.certificateSecretName }}
- {name: ops-certificate, secretName: {{ .monitoring.certificateSecretName | quote }}}
{{- end }}
{{- if and .apiserver.internalCertificateSecretName (eq $.role "apiserver") }}
- {name: internal-certificate, secretName: {{ .apiserver.internalCertificateSecretName | quote }}}
{{- end }}
{{- if and .receipts.smtpURL .receipts.caSecretName (eq $.role "dispatcher") }}
- {name: smtp-ca, secretName: {{ .receipts.caSecretName | quote }}, key: ca.crt}
{{- end }}
{{- if eq $.role "console" }}
- {name: internal-ca, secretName: {{ .apiserver.internalCertificateSecretName | quote }}, key: ca.crt}
{{- with .apiserver.internalAudience }}
- {name: internal-token, audience: {{ . | quote }}}
{{- end }}
{{- if .console.certificateSecretName }}
- {name: console-certificate, secretName: {{ .console.certificateSecretName | quote }}}
{{- end }}
{{- if .console.oidc.caSecretName }}
- {name: oidc-ca, secretName: {{ .console.oidc.caSecretName | quote }}, key: ca.crt}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "merchant-operator.mounts" -}}
{{- $certificates := include "merchant-operator.certificates" . | fromYamlArray -}}
{{- $extra := (index .root.Values .role).extraVolumeMounts -}}
{{- if or $certificates $extra }}
volumeMounts:
{{- range $certificates }}
- name: {{ .name | quote }}
  mountPath: /etc/merchant-operator/{{ .name }}
  readOnly: true
{{- end }}
{{- with $extra }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "merchant-operator.volumes" -}}
{{- $certificates := include "merchant-operator.certificates" . | fromYamlArray -}}
{{- $extra := (index .root.Values .role).extraVolumes -}}
{{- if or $certificates $extra }}
volumes:
{{- range $certificates }}
- name: {{ .name | quote }}
  {{- if .audience }}
  projected:
    sources:
    - serviceAccountToken: {audience: {{ .audience | quote }}, expirationSeconds: 3600, path: token}
  {{- else }}
  secret:
    secretName: {{ .secretName | quote }}
    {{- with .key }}
    items:
    - key: {{ . | quote }}
      path: {{ . | quote }}
    {{- end }}
  {{- end }}
{{- end }}
{{- with $extra }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}
{{- end -}}
