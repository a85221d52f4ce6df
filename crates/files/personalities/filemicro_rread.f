# Reads at random places of one file.
set $dir=/tmp
set $nthreads=1
set $iosize=2k
set $filesize=256m
set $cached=true
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc,cached=$cached
define process name=micro,instances=1 {
  thread name=micro,memsize=10m,instances=$nthreads {
    flowop read name=rread,filesetname=bigfileset,iosize=$iosize,random
  }
}
run 60
