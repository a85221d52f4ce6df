# Shows custom variables: sizes of files and appends follow other distributions.
set $dir=/tmp
set $nfiles=500
set $nthreads=4
set $filesize=cvar(type=cvar-lognormal,parameters=shape:1.0;scale:9.5,min=1k,max=4m,round=512)
set $append=cvar(type=cvar-triangular,parameters=lower:512;upper:65536;mode:4096,min=1)
set $iosize=cvar(type=cvar-normal,parameters=mean:16384;sigma:4096,min=512,max=64k,round=512)
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=20,prealloc=80
define process name=example1,instances=1 {
  thread name=example1,memsize=10m,instances=$nthreads {
    flowop openfile name=open1,filesetname=bigfileset,fd=1
    flowop readwholefile name=read1,fd=1,iosize=$iosize
    flowop appendfile name=append1,fd=1,iosize=$append
    flowop closefile name=close1,fd=1
  }
}
run 60
