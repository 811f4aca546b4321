/* What systemd is told: a datagram to $NOTIFY_SOCKET. Nothing happens where there is none. */
#ifndef SUPERVISOR_NOTIFY_H
#define SUPERVISOR_NOTIFY_H

/* `state` as in sd_notify(3): "READY=1\nSTATUS=...". */
void notify_send(const char *state);

#endif
