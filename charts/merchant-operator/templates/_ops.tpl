{{/* Arguments of a monitored ops port. */}}

{{- define "merchant-operator.opsArgs" -}}
{{- if .Values.monitoring.enabled }}
- --secure-metrics
{{- if .Values.monitoring.certificateSecretName }}
- --ops-cert-dir=/etc/merchant-operator/ops-certificate
{{- end }}
{{- end }}
{{- end -}}

{{/* Volume mounts and volumes of a role: certificates only. Takes root; redis: whether the role uses Redis; and internal: whether it
has the internal port. */}}
{{- define "merchant-operator.mounts" -}}
{{- $authority := and .redis .root.Values.redis.tls.caSecretName -}}
{{- $certificate := and .root.Values.monitoring.enabled .root.Values.monitoring.certificateSecretName -}}
{{- $internal := and .internal .root.Values.apiserver.internalCertificateSecretName -}}
{{- if or $authority $certificate $internal }}
volumeMounts:
{{- if $authority }}
# The certificate authority of Redis.
- name: redis-ca
  mountPath: /etc/merchant-operator/redis-ca
  readOnly: true
{{- end }}
{{- if $certificate }}
- name: ops-certificate
  mountPath: /etc/merchant-operator/ops-certificate
  readOnly: true
{{- end }}
{{- if $internal }}
- name: internal-certificate
  mountPath: /etc/merchant-operator/internal-certificate
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{- define "merchant-operator.volumes" -}}
{{- $authority := and .redis .root.Values.redis.tls.caSecretName -}}
{{- $certificate := and .root.Values.monitoring.enabled .root.Values.monitoring.certificateSecretName -}}
{{- $internal := and .internal .root.Values.apiserver.internalCertificateSecretName -}}
{{- if or $authority $certificate $internal }}
volumes:
{{- if $authority }}
- name: redis-ca
  secret:
    secretName: {{ $authority }}
{{- end }}
{{- if $certificate }}
- name: ops-certificate
  secret:
    secretName: {{ $certificate }}
{{- end }}
{{- if $internal }}
- name: internal-certificate
  secret:
    secretName: {{ $internal }}
{{- end }}
{{- end }}
{{- end -}}
